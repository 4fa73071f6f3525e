package envelope_test

import (
	"testing"
	"testing/quick"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/envelope"
)

func shop() envelope.Container {
	return envelope.Container{Namespace: "shop", QoS: "Burstable", Limits: mdp.Size{CPU: 1000, Memory: 256 * mdp.MiB}}
}

func TestEnvelopeIsNeverAboveWhatIsAllocated(t *testing.T) {
	law := func(cpu, settled uint16, mem, settledMem uint32, lo, hi uint16, mlo, mhi uint32, pending bool) bool {
		c := shop()
		c.ResizePending = pending
		c.Limits = mdp.Size{CPU: mdp.MilliCPU(cpu), Memory: mdp.Bytes(mem)}
		c.Settled = mdp.Size{CPU: mdp.MilliCPU(settled), Memory: mdp.Bytes(settledMem)}
		e := envelope.Of(c, mdp.Bounds{CPU: mdp.Range[mdp.MilliCPU]{Min: mdp.MilliCPU(lo), Max: mdp.MilliCPU(hi)},
			Memory: mdp.Range[mdp.Bytes]{Min: mdp.Bytes(mlo), Max: mdp.Bytes(mhi)}}, envelope.Rules{})
		ceiling := c.Ceiling()
		if pending && cpu > 0 && settled > 0 && ceiling.CPU > mdp.MilliCPU(min(cpu, settled)) {
			return false
		}
		inside := e.Bounds.CPU.Min <= e.Bounds.CPU.Max && e.Bounds.CPU.Max <= ceiling.CPU &&
			e.Bounds.Memory.Min <= e.Bounds.Memory.Max && e.Bounds.Memory.Max <= ceiling.Memory
		return inside && e.Knobs.Has(mdp.CPULimit) == (ceiling.CPU > 0) && e.Knobs.Has(mdp.MemoryLimit) == (ceiling.Memory > 0)
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
}

func TestEnvelopeSaysWhyAContainerIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*envelope.Container)
		rules  envelope.Rules
		want   envelope.Reason
	}{
		"a deleted pod": {func(c *envelope.Container) { c.PodDeleting = true }, envelope.Rules{}, envelope.Deleting},
		"a static pod":  {func(c *envelope.Container) { c.Mirror = true }, envelope.Rules{}, envelope.Static},
		"an init container": {
			func(c *envelope.Container) { c.Kind = envelope.Init }, envelope.Rules{}, envelope.NotRegular,
		},
		"an ephemeral container": {
			func(c *envelope.Container) { c.Kind = envelope.Ephemeral }, envelope.Rules{}, envelope.NotRegular,
		},
		"kube-system": {
			func(c *envelope.Container) { c.Namespace = "kube-system" }, envelope.Rules{}, envelope.System,
		},
		"our own namespace": {
			func(c *envelope.Container) { c.Namespace = "aware" }, envelope.Rules{OwnNamespace: "aware"},
			envelope.Own,
		},
		"a namespace beside our own": {func(*envelope.Container) {}, envelope.Rules{OwnNamespace: "aware"}, ""},
		"exclusive CPUs": {
			func(c *envelope.Container) { c.ExclusiveCPUs = true }, envelope.Rules{Guaranteed: true},
			envelope.Exclusive,
		},
		"a Guaranteed pod": {
			func(c *envelope.Container) { c.QoS = "Guaranteed" }, envelope.Rules{}, envelope.GuaranteedPod,
		},
		"a Guaranteed pod, allowed": {func(c *envelope.Container) { c.QoS = "Guaranteed" }, envelope.Rules{Guaranteed: true}, ""},
		"no limits at all": {
			func(c *envelope.Container) { c.Limits = mdp.Size{} }, envelope.Rules{}, envelope.NothingToMove,
		},
		"a burstable pod": {func(*envelope.Container) {}, envelope.Rules{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			container := shop()
			c.change(&container)
			e := envelope.Of(container, mdp.Bounds{}, c.rules)
			if e.Left != c.want || (e.Left == "") != (e.Knobs != 0) {
				t.Errorf("left %q, knobs %v; want %q", e.Left, e.Knobs, c.want)
			}
		})
	}
	c := shop()
	c.Limits.CPU = 0
	if e := envelope.Of(c, mdp.Bounds{}, envelope.Rules{}); e.LeftCPU != envelope.NoCPULimit ||
		e.Knobs != mdp.SetOf(mdp.MemoryLimit) {
		t.Errorf("without a CPU limit: %+v", e)
	}
}

// A grant's range is kept as it is within the floor and the ceiling. Above the ceiling nothing is moved, which is said; where its
// ends are the wrong way round, or below the floor, its floor counts.
func TestAGrantIsKeptWithinTheFloorAndTheCeiling(t *testing.T) {
	const floor, ceiling = 10, 1000
	for _, c := range []struct {
		grant, want mdp.Range[mdp.MilliCPU]
		why         envelope.Reason
	}{
		{mdp.Range[mdp.MilliCPU]{}, mdp.Range[mdp.MilliCPU]{Min: floor, Max: ceiling}, ""},
		{mdp.Range[mdp.MilliCPU]{Min: 200, Max: 300}, mdp.Range[mdp.MilliCPU]{Min: 200, Max: 300}, ""},
		{mdp.Range[mdp.MilliCPU]{Max: 300}, mdp.Range[mdp.MilliCPU]{Min: floor, Max: 300}, ""},
		{mdp.Range[mdp.MilliCPU]{Min: 200, Max: 4000}, mdp.Range[mdp.MilliCPU]{Min: 200, Max: ceiling}, ""},
		{mdp.Range[mdp.MilliCPU]{Min: 1000, Max: 1000}, mdp.Range[mdp.MilliCPU]{Min: ceiling, Max: ceiling}, ""},
		{mdp.Range[mdp.MilliCPU]{Min: 1001}, mdp.Range[mdp.MilliCPU]{Min: ceiling, Max: ceiling}, envelope.BoundsTooLarge},
		{mdp.Range[mdp.MilliCPU]{Min: 300, Max: 200}, mdp.Range[mdp.MilliCPU]{Min: 300, Max: 300}, ""},
		{mdp.Range[mdp.MilliCPU]{Min: 1, Max: 2}, mdp.Range[mdp.MilliCPU]{Min: floor, Max: floor}, ""},
		{mdp.Range[mdp.MilliCPU]{Min: -5, Max: -5}, mdp.Range[mdp.MilliCPU]{Min: floor, Max: ceiling}, ""},
	} {
		e := envelope.Of(shop(), mdp.Bounds{CPU: c.grant}, envelope.Rules{})
		if e.Bounds.CPU != c.want || e.LeftCPU != c.why {
			t.Errorf("a grant of %v: %v %q, want %v %q", c.grant, e.Bounds.CPU, e.LeftCPU, c.want, c.why)
		}
		memory := mdp.Range[mdp.Bytes]{Min: mdp.Bytes(c.grant.Min) * mdp.MiB, Max: mdp.Bytes(c.grant.Max) * mdp.MiB}
		large := shop()
		large.Limits.Memory = ceiling * mdp.MiB
		want := mdp.Range[mdp.Bytes]{Min: mdp.Bytes(c.want.Min) * mdp.MiB, Max: mdp.Bytes(c.want.Max) * mdp.MiB}
		if want.Min == floor*mdp.MiB {
			want.Min = 4 * mdp.MiB
		}
		if want.Max == floor*mdp.MiB {
			want.Max = 4 * mdp.MiB
		}
		if e := envelope.Of(large, mdp.Bounds{Memory: memory}, envelope.Rules{}); e.Bounds.Memory != want || e.LeftMemory != c.why {
			t.Errorf("a grant of %v: %v %q, want %v %q", memory, e.Bounds.Memory, e.LeftMemory, want, c.why)
		}
	}
}

func TestCeilingIsTheSmallerLimitWhileAResizeIsPending(t *testing.T) {
	c := shop()
	c.Settled = mdp.Size{CPU: 500, Memory: 512 * mdp.MiB}
	c.Limits = mdp.Size{CPU: 2000, Memory: 256 * mdp.MiB}
	c.ResizePending = true
	e := envelope.Of(c, mdp.Bounds{}, envelope.Rules{})
	if e.Bounds.CPU.Max != 500 || e.Bounds.Memory.Max != 256*mdp.MiB {
		t.Errorf("ceiling %v, %v; want 500m and 256Mi", e.Bounds.CPU.Max, e.Bounds.Memory.Max)
	}
	c.ResizePending = false
	if e = envelope.Of(c, mdp.Bounds{}, envelope.Rules{}); e.Bounds.CPU.Max != 2000 {
		t.Errorf("once allocated: %v, want 2000m", e.Bounds.CPU.Max)
	}
}

// A pod's news come late at times. Then what the kubelet has written, or what it has
// given the pod's own group, is newer than what the agent knows of the API.
func TestCeilingIsNeverAboveWhatSomebodyElseHasSetOrThePodHasRoomFor(t *testing.T) {
	c := shop()
	c.Foreign.CPU = 300
	c.Room = mdp.Size{CPU: 400, Memory: 100 * mdp.MiB}
	if got, want := c.Ceiling(), (mdp.Size{CPU: 300, Memory: 100 * mdp.MiB}); got != want {
		t.Errorf("ceiling %v, want %v", got, want)
	}
	c.Limits.CPU = 0
	if got := c.Ceiling().CPU; got != 0 {
		t.Errorf("a container without a CPU limit got one of %v", got)
	}
}

func TestMemoryStaysAboveItsRequestUnlessTheGrantSaysOtherwise(t *testing.T) {
	c := shop()
	c.Requests.Memory = 100 * mdp.MiB
	if got := envelope.Of(c, mdp.Bounds{}, envelope.Rules{}).Bounds.Memory.Min; got != 100*mdp.MiB {
		t.Errorf("least memory %v, want the request", got)
	}
	asked := mdp.Bounds{Memory: mdp.Range[mdp.Bytes]{Min: 20 * mdp.MiB}}
	if got := envelope.Of(c, asked, envelope.Rules{}).Bounds.Memory.Min; got != 20*mdp.MiB {
		t.Errorf("least memory %v, want what the grant says", got)
	}
}

// FuzzOf: whatever central grants, nothing is allowed above the API's limit or below the
// floor.
func FuzzOf(f *testing.F) {
	f.Add(int64(50), int64(2000), int64(0), int64(-1), int64(1000), int64(256<<20))
	f.Fuzz(func(t *testing.T, cpuMin, cpuMax, memoryMin, memoryMax, cpu, memory int64) {
		if cpu < 0 || memory < 0 {
			return
		}
		c := shop()
		c.Limits = mdp.Size{CPU: mdp.MilliCPU(cpu), Memory: mdp.Bytes(memory)}
		e := envelope.Of(c, mdp.Bounds{
			CPU:    mdp.Range[mdp.MilliCPU]{Min: mdp.MilliCPU(cpuMin), Max: mdp.MilliCPU(cpuMax)},
			Memory: mdp.Range[mdp.Bytes]{Min: mdp.Bytes(memoryMin), Max: mdp.Bytes(memoryMax)},
		}, envelope.Rules{})
		b := e.Bounds
		if b.CPU.Max > c.Limits.CPU || b.Memory.Max > c.Limits.Memory || b.CPU.Min > b.CPU.Max || b.Memory.Min > b.Memory.Max ||
			b.CPU.Min < min(envelope.LeastCPU, c.Limits.CPU) || b.Memory.Min < min(envelope.LeastMemory, c.Limits.Memory) {
			t.Errorf("bounds %+v of %v", b, c.Limits)
		}
	})
}
