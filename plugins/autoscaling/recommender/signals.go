package recommender

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signals is the observed signals of a State by name, as a status carries them:
// in base units, so CPU is in cores.
func Signals(s mdp.State) map[string]resource.Quantity {
	all := map[string]resource.Quantity{}
	for one := range s.Observed.Signals() {
		if q, ok := quantity(one.Unit(), one.Value(&s)); ok {
			all[one.String()] = q
		}
	}
	return all
}

// Sets is what an Action sets, in the form of [Signals].
func Sets(a mdp.Action) map[string]resource.Quantity {
	return Signals(mdp.State{Observed: a.Sets & mdp.Knobs, Replicas: a.Replicas, Limit: a.Limit, Reservation: a.Reservation})
}

// StateOf is the State that [Signals] were written from. A signal with a name
// that is not known, of a newer version, is left out.
func StateOf(all map[string]resource.Quantity) mdp.State {
	var s mdp.State
	for one := range mdp.Signals() {
		if q, ok := all[one.String()]; ok {
			one.Set(&s, value(one.Unit(), q))
		}
	}
	return s
}

// Describe prints signals for people, such as "replicas=2 cpu-usage=180m
// latency=12.3ms".
func Describe(all map[string]resource.Quantity) string {
	var parts []string
	for one := range mdp.Signals() {
		if q, ok := all[one.String()]; ok {
			parts = append(parts, one.String()+"="+format(one.Unit(), value(one.Unit(), q)))
		}
	}
	return strings.Join(parts, " ")
}

// Inputs describes what a decision was made from. A signal that was not observed
// is left out.
func Inputs(s mdp.State) string {
	if text := Describe(Signals(s)); text != "" {
		return text
	}
	return "nothing observed"
}

// format prints a value for people.
func format(u mdp.Unit, v float64) string {
	switch u {
	case mdp.Millicores:
		return mdp.MilliCPU(math.Round(v)).String()
	case mdp.ByteCount:
		return fmt.Sprintf("%.0fMi", mdp.Bytes(v).MiB())
	case mdp.BytesPerSecond:
		return fmt.Sprintf("%.1fMi/s", mdp.Bytes(v).MiB())
	case mdp.Seconds:
		return time.Duration(math.Round(v * float64(time.Second))).Round(100 * time.Microsecond).String()
	case mdp.RatioUnit:
		return fmt.Sprintf("%.2f", v)
	case mdp.RequestsPerSec:
		return fmt.Sprintf("%.1f/s", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// quantity is a value of a signal as the API writes it: whole, or rounded to
// millionths of the base unit. ok is false for a value that is not finite, or too
// large.
func quantity(u mdp.Unit, v float64) (q resource.Quantity, ok bool) {
	if u == mdp.Millicores {
		v /= 1000
	}
	const largest = math.MaxInt64 / 1e6 / 2 // in millionths it still fits
	switch {
	case math.IsNaN(v) || math.Abs(v) > math.MaxInt64/2:
		return q, false
	case u == mdp.ByteCount:
		return *resource.NewQuantity(int64(v), resource.BinarySI), true
	case v == math.Trunc(v) || math.Abs(v) > largest:
		return *resource.NewQuantity(int64(v), resource.DecimalSI), true
	}
	return *resource.NewScaledQuantity(int64(math.Round(v*1e6)), resource.Micro), true
}

// value is the inverse of quantity.
func value(u mdp.Unit, q resource.Quantity) float64 {
	// AsApproximateFloat64 is not the nearest number.
	v, err := strconv.ParseFloat(q.AsDec().String(), 64)
	if err != nil {
		return q.AsApproximateFloat64() // a quantity is a number: it does not happen
	}
	if u == mdp.Millicores {
		v *= 1000
	}
	return v
}
