package api

import (
	"errors"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func refToWire(c ContainerRef) *linkv1.ContainerRef {
	return &linkv1.ContainerRef{Namespace: c.Namespace, Pod: c.Pod, PodUid: c.PodUID, Container: c.Container}
}

func refFromWire(c *linkv1.ContainerRef) ContainerRef {
	return ContainerRef{
		Namespace: c.GetNamespace(),
		Pod:       c.GetPod(),
		PodUID:    c.GetPodUid(),
		Container: c.GetContainer(),
	}
}

// Bounds, Actions and States travel by the tables of signals and knobs of mdp:
// what is added there travels, too.

func boundsToWire(b mdp.Bounds) *linkv1.Bounds {
	w := &linkv1.Bounds{}
	for k := range mdp.Knobs.Signals() {
		if r := b.Knob(k); r != (mdp.Range[int64]{}) {
			w.Knobs |= uint32(mdp.SetOf(k))
			w.Min = append(w.Min, r.Min)
			w.Max = append(w.Max, r.Max)
		}
	}
	return w
}

func boundsFromWire(w *linkv1.Bounds) (mdp.Bounds, error) {
	var b mdp.Bounds
	i := 0
	for k := range (mdp.Set(w.GetKnobs()) & mdp.Knobs).Signals() {
		if i >= len(w.GetMin()) || i >= len(w.GetMax()) {
			return b, fmt.Errorf("bounds without a value for %v", k)
		}
		b = b.WithKnob(k, mdp.Range[int64]{Min: w.Min[i], Max: w.Max[i]})
		i++
	}
	return b, nil
}

func actionToWire(a mdp.Action) *linkv1.Action {
	w := &linkv1.Action{Sets: uint32(a.Sets), Clipped: uint32(a.Clipped)}
	for k := range a.Sets.Signals() {
		v, _ := a.Knob(k)
		w.Values = append(w.Values, v)
	}
	return w
}

func actionFromWire(w *linkv1.Action) (mdp.Action, error) {
	a := mdp.Action{Clipped: mdp.Clips(w.GetClipped())}
	i := 0
	for k := range (mdp.Set(w.GetSets()) & mdp.Knobs).Signals() {
		if i >= len(w.GetValues()) {
			return a, fmt.Errorf("an action without a value for %v", k)
		}
		a = a.WithKnob(k, w.Values[i])
		i++
	}
	return a, nil
}

func stateToWire(s mdp.State) *linkv1.State {
	w := &linkv1.State{At: timestamppb.New(s.At), Observed: uint32(s.Observed)}
	for one := range s.Observed.Signals() {
		if one.Integer() {
			w.Integers = append(w.Integers, one.Int(&s))
		} else {
			w.Numbers = append(w.Numbers, one.Float(&s))
		}
	}
	return w
}

func stateFromWire(w *linkv1.State) (mdp.State, error) {
	s := mdp.State{At: w.GetAt().AsTime(), Observed: mdp.Set(w.GetObserved()) & mdp.All}
	integers, numbers := w.GetIntegers(), w.GetNumbers()
	for one := range s.Observed.Signals() {
		switch {
		case one.Integer() && len(integers) > 0:
			one.SetInt(&s, integers[0])
			integers = integers[1:]
		case !one.Integer() && len(numbers) > 0:
			one.SetFloat(&s, numbers[0])
			numbers = numbers[1:]
		default:
			return mdp.State{}, fmt.Errorf("a state without a value for %v", one)
		}
	}
	return s, nil
}

func histogramFromWire(h *linkv1.Histogram) (Histogram, error) {
	upper, counts := h.GetUpperSeconds(), h.GetCounts()
	if len(upper) != len(counts) || len(upper) > MaxBuckets {
		return Histogram{}, fmt.Errorf("histogram of %d bounds and %d counts: as many of both, and at most %d",
			len(upper), len(counts), MaxBuckets)
	}
	if len(upper) > 0 && math.IsNaN(upper[0]) {
		return Histogram{}, errors.New("histogram whose first bound is not a number")
	}
	for i := 1; i < len(upper); i++ {
		if !(upper[i] > upper[i-1]) || counts[i] < counts[i-1] {
			return Histogram{}, fmt.Errorf("histogram whose bucket %d (%v s, %d) is below the one before it (%v s, %d)",
				i, upper[i], counts[i], upper[i-1], counts[i-1])
		}
	}
	read := Histogram{Upper: upper, Counts: counts}
	if h.GetAt() != nil {
		read.At = h.GetAt().AsTime()
	}
	return read, nil
}

func histogramToWire(h Histogram) *linkv1.Histogram {
	if !h.Known() {
		return nil
	}
	w := &linkv1.Histogram{UpperSeconds: h.Upper, Counts: h.Counts}
	if !h.At.IsZero() {
		w.At = timestamppb.New(h.At)
	}
	return w
}

// ReportToWire writes a report for the wire.
func ReportToWire(r Report) *linkv1.Report {
	w := &linkv1.Report{Node: r.Node, Agent: r.Agent, At: timestamppb.New(r.At), Full: r.Full}
	for _, s := range r.Containers {
		w.Containers = append(w.Containers, &linkv1.Summary{
			Container: refToWire(s.Container), State: stateToWire(s.State), Bounds: boundsToWire(s.Bounds),
			Mode: string(s.Mode), Want: actionToWire(s.Want), Effect: uint32(s.Effect),
			Resizes: s.Resizes, Conflicts: s.Conflicts, Problem: s.Problem,
			Latency: histogramToWire(s.Latency), UntilHalf: s.Course.Until, UsedHalves: converted[int64](s.Course.Use),
		})
	}
	for _, c := range r.Gone {
		w.Gone = append(w.Gone, refToWire(c))
	}
	if a := r.Account; a != nil {
		w.Account = &linkv1.Account{InForce: sizeToWire(a.InForce), Asked: sizeToWire(a.Asked), Holds: idToWire(a.Holds)}
	}
	return w
}

// ReportFromWire reads a report. Containers that cannot be read count as gone, and an
// account that cannot be is left out: the error names them and says what is wrong, and the
// report is good without them.
func ReportFromWire(w *linkv1.Report) (Report, error) {
	r := Report{Node: w.GetNode(), Agent: w.GetAgent(), At: w.GetAt().AsTime(), Full: w.GetFull()}
	var bad []error
	for _, s := range w.GetContainers() {
		one, err := summaryFromWire(s)
		if err != nil {
			ref := refFromWire(s.GetContainer())
			bad = append(bad, fmt.Errorf("container %.160q: %w", ref, err))
			r.Gone = append(r.Gone, ref)
			continue
		}
		r.Containers = append(r.Containers, one)
	}
	for _, c := range w.GetGone() {
		r.Gone = append(r.Gone, refFromWire(c))
	}
	if a := w.GetAccount(); a != nil {
		account := Account{
			InForce: sizeFromWire(a.GetInForce()),
			Asked:   sizeFromWire(a.GetAsked()),
			Holds:   idFromWire(a.GetHolds()),
		}
		if err := account.Check(); err != nil {
			bad = append(bad, fmt.Errorf("account: %w", err))
		} else {
			r.Account = &account
		}
	}
	return r, errors.Join(bad...)
}

func summaryFromWire(w *linkv1.Summary) (Summary, error) {
	s := Summary{
		Container: refFromWire(w.GetContainer()), Mode: Mode(w.GetMode()), Effect: mdp.Effect(w.GetEffect()),
		Resizes: w.GetResizes(), Conflicts: w.GetConflicts(), Problem: Clean(w.GetProblem()),
		Course: Course{Until: w.GetUntilHalf(), Use: converted[mdp.MilliCPU](w.GetUsedHalves())},
	}
	if !s.Effect.Known() {
		return Summary{}, fmt.Errorf("effect %d: this version knows none of that number", s.Effect)
	}
	var err error
	if s.State, err = stateFromWire(w.GetState()); err != nil {
		return Summary{}, err
	}
	if s.Bounds, err = boundsFromWire(w.GetBounds()); err != nil {
		return Summary{}, err
	}
	if s.Want, err = actionFromWire(w.GetWant()); err != nil {
		return Summary{}, err
	}
	if s.Latency, err = histogramFromWire(w.GetLatency()); err != nil {
		return Summary{}, err
	}
	return s, nil
}

// converted is the same numbers as another type of whole numbers.
func converted[To, From ~int64](from []From) []To {
	if from == nil {
		return nil
	}
	to := make([]To, len(from))
	for i, v := range from {
		to[i] = To(v)
	}
	return to
}

func sizeToWire(s mdp.Size) *linkv1.Size {
	return &linkv1.Size{MilliCpu: int64(s.CPU), MemoryBytes: int64(s.Memory)}
}

func sizeFromWire(w *linkv1.Size) mdp.Size {
	return mdp.Size{CPU: mdp.MilliCPU(w.GetMilliCpu()), Memory: mdp.Bytes(w.GetMemoryBytes())}
}

func idToWire(id PermitID) *linkv1.PermitId {
	if id == (PermitID{}) {
		return nil
	}
	return &linkv1.PermitId{Epoch: id.Epoch, Number: id.Number}
}

func idFromWire(w *linkv1.PermitId) PermitID {
	return PermitID{Epoch: w.GetEpoch(), Number: w.GetNumber()}
}

// GrantsToWire writes a set of grants for the wire.
func GrantsToWire(m Grants) *linkv1.Grants {
	w := &linkv1.Grants{Ttl: durationpb.New(m.TTL), Unchanged: m.Unchanged}
	if m.Permit.Known() {
		w.Permit = &linkv1.Permit{Id: idToWire(m.Permit.ID), Amount: sizeToWire(m.Permit.Amount)}
	}
	for _, one := range m.All {
		if one.Keep {
			w.All = append(w.All, &linkv1.Grant{Container: refToWire(one.Container), Keep: true})
			continue
		}
		w.All = append(w.All, &linkv1.Grant{
			Container:     refToWire(one.Container),
			Mode:          string(one.Mode),
			Paused:        one.Paused,
			Bounds:        boundsToWire(one.Bounds),
			ThrottleRatio: float64(one.Throttle),
			Rule:          string(one.Rule),
			Margin:        one.Margin,
			PatienceMs:    one.Patience.Milliseconds(),
			LateWindows:   one.LateWindows,
			Latency: &linkv1.Source{
				Port:   one.Latency.Port,
				Path:   one.Latency.Path,
				Metric: one.Latency.Metric,
			},
		})
	}
	return w
}

// GrantsFromWire refuses the whole set when one grant cannot be read: an agent
// that took a part of it would restore the other containers.
func GrantsFromWire(w *linkv1.Grants) (Grants, error) {
	m := Grants{TTL: w.GetTtl().AsDuration(), Unchanged: w.GetUnchanged()}
	if m.TTL <= 0 || m.TTL > 24*time.Hour {
		return Grants{}, fmt.Errorf("grants with a time to live of %v: it must be above zero and at most a day",
			m.TTL)
	}
	if m.Unchanged && len(w.GetAll()) > 0 {
		return Grants{}, fmt.Errorf("%d grants in a message that says they are unchanged", len(w.GetAll()))
	}
	m.Permit = Permit{ID: idFromWire(w.GetPermit().GetId()), Amount: sizeFromWire(w.GetPermit().GetAmount())}
	if err := m.Permit.check(); err != nil {
		return Grants{}, fmt.Errorf("central's permit: %w", err)
	}
	if w.GetPermit() != nil && !m.Permit.Known() {
		return Grants{}, fmt.Errorf("central's permit of %v: it has no number", m.Permit.Amount)
	}
	for _, one := range w.GetAll() {
		ref := refFromWire(one.GetContainer())
		if one.GetKeep() {
			m.All = append(m.All, Grant{Container: ref, Keep: true})
			continue
		}
		mode, err := ParseMode(one.GetMode())
		if err != nil {
			return Grants{}, fmt.Errorf("grant of container %v: %w", ref, err)
		}
		throttle := mdp.Ratio(one.GetThrottleRatio())
		if !(throttle >= 0 && throttle < 1) {
			return Grants{}, fmt.Errorf("grant of container %v: throttle ratio %v: it must be in [0, 1)", ref,
				float64(throttle))
		}
		if m := one.GetMargin(); !(m >= -MaxMargin && m <= MaxMargin) {
			return Grants{}, fmt.Errorf("grant of container %v: margin %v: it must be in [%d, %d]", ref, m, -MaxMargin, MaxMargin)
		}
		patience := one.GetPatienceMs()
		if patience < 0 || patience > MaxPatience.Milliseconds() {
			return Grants{}, fmt.Errorf("grant of container %v: patience %d ms: it must be in [0, %d]", ref, patience,
				MaxPatience.Milliseconds())
		}
		bounds, err := boundsFromWire(one.GetBounds())
		if err != nil {
			return Grants{}, fmt.Errorf("grant of container %v: %w", ref, err)
		}
		m.All = append(m.All, Grant{
			Container:   ref,
			Mode:        mode,
			Paused:      one.GetPaused(),
			Bounds:      bounds,
			Throttle:    throttle,
			Rule:        Rule(Clean(one.GetRule())),
			Margin:      one.GetMargin(),
			Patience:    time.Duration(patience) * time.Millisecond,
			LateWindows: one.GetLateWindows(),
			Latency: Source{
				Port:   one.GetLatency().GetPort(),
				Path:   one.GetLatency().GetPath(),
				Metric: one.GetLatency().GetMetric(),
			},
		})
	}
	return m, nil
}
