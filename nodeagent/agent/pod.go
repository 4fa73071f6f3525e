package agent

import (
	"path/filepath"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/envelope"
)

// others is what the API gives to a pod's other containers.
type others struct {
	limits mdp.Size // their sum
	shared mdp.Set  // limits of the pod that are not the sum of its containers' limits
}

// others is the other running containers of a pod.
func (p Pod) others(name string) others {
	var o others
	if p.PodLimits {
		o.shared = mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)
	}
	for _, one := range p.Containers {
		if one.Name == name || one.Kind != envelope.Regular && !one.Running {
			continue
		}
		o.limits.CPU += one.Limits.CPU
		o.limits.Memory += one.Limits.Memory
		if one.Limits.CPU == 0 {
			o.shared |= mdp.SetOf(mdp.CPULimit)
		}
		if one.Limits.Memory == 0 {
			o.shared |= mdp.SetOf(mdp.MemoryLimit)
		}
	}
	return o
}

// room is what the pod's own limits leave to the container. They are the kubelet's:
// it changes them with those of the containers, and nobody else does. Room that cannot
// be read, or is less than what is in force, is what is in force: then nothing is
// raised.
func (c *managedContainer) room() mdp.Size {
	now := c.inForce.Size()
	pod, err := c.tree.Limits(filepath.Dir(c.path))
	if err != nil {
		c.problem = also(c.problem, err.Error())
		return now
	}
	size := pod.Size()
	return mdp.Size{
		CPU:    left(size.CPU, c.others.limits.CPU, now.CPU, c.others.shared.Has(mdp.CPULimit)),
		Memory: left(size.Memory, c.others.limits.Memory, now.Memory, c.others.shared.Has(mdp.MemoryLimit)),
	}
}

// left is what a limit of the pod leaves, but not less than what is in force; 0 is no
// limit.
func left[T ~int64](pod, others, inForce T, shared bool) T {
	if pod == 0 || inForce == 0 {
		return pod
	}
	if !shared {
		pod -= others
	}
	return max(pod, inForce)
}

// foreign is the limits of a container that somebody else has set, most often the
// kubelet, before the API server's news of it were heard. Until then they are a
// ceiling.
type foreign struct {
	limits mdp.Size  // 0 is none
	with   mdp.Size  // the API's limits then, that the kubelet had carried out
	news   time.Time // when these were first others; zero before
	brief  mdp.Set   // limits that were not seen to be somebody else's, but may be
	until  time.Time // how long that is assumed
	asked  bool      // the API server was asked since: it gives what was known
}

// newsLast is how long the API's news must stay the same before they count more than
// what was seen: they come in order, and late ones come close together.
const newsLast = 5 * time.Second

// seen takes in the limits in force that somebody else has set. The kubelet sets all
// limits of a container at once, so the others may be its own too, although they are
// what they were: that is assumed for as long as news may be late.
func (f *foreign) seen(now time.Time, set mdp.Set, inForce, settled mdp.Size) {
	if set == 0 {
		f.calm(now)
		return
	}
	all := mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)
	f.brief = all &^ set
	f.until = now.Add(newsLast)
	f.limits = inForce
	f.with = settled
	f.news = time.Time{}
	f.asked = false
}

// calm ends what was assumed for a while.
func (f *foreign) calm(now time.Time) {
	if f.brief == 0 || now.Before(f.until) {
		return
	}
	if f.brief.Has(mdp.CPULimit) {
		f.limits.CPU = 0
	}
	if f.brief.Has(mdp.MemoryLimit) {
		f.limits.Memory = 0
	}
	f.brief = 0
}

// above reports whether somebody else has set more than what the API is known to give. It may be the kubelet, whose
// news have not come: they can be as late as the API server is away.
func (f *foreign) above(known mdp.Size) bool {
	return !f.asked && (known.CPU > 0 && f.limits.CPU > known.CPU || known.Memory > 0 && f.limits.Memory > known.Memory)
}

// heard takes in the API's limits, which the kubelet has carried out. It reports whether
// they explain what was seen: it was the kubelet, and the news were late.
func (f *foreign) heard(now time.Time, settled mdp.Size) (explained bool) {
	switch {
	case f.limits == (mdp.Size{}):
	case settled == f.with:
		f.news = time.Time{}
	case f.news.IsZero():
		f.news = now
		return settled == f.limits
	case now.Sub(f.news) >= newsLast:
		*f = foreign{}
	}
	return false
}
