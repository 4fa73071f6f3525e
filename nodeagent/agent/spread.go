package agent

import (
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// The limit at rest. A limit that covers each peak costs its height all the time; one that does
// not costs the ceiling for the time of a relief, and some throttling, each time the use is higher. Where
// the target allows throttling now and then, the limit at rest is the cheapest one: it is found in
// the spread of the CPU use in tenths of a second, of about the last minute. What throttles is that the
// use rises above the limit, and not that it stays there: a burst that lasts is relieved once.

const (
	tenth = 100 * time.Millisecond
	// Buckets of CPU use: eight for each factor of two, from leastUse on.
	perOctave          = 8
	buckets            = 128
	leastUse   float64 = 10 // millicores
	remembered         = time.Minute
	// A spread of fewer samples says little.
	enoughSamples = 100
	// A limit that the use is above nearly all the time costs nearly what the top costs, and throttles.
	worthwhile = 0.98
)

// spread is how often a container used how much CPU in a tenth of a second. Old samples count less.
type spread struct {
	weights [buckets]float32
	rises   [buckets]float32 // the sum from i+1 on is how often the use rose above bucket i
	last    int              // bucket of the newest sample
	sum     float32
	weight  float32 // of the next sample; grows, instead of the others becoming less
	n       int     // of samples
	later   int     // samples of nothing that are not in yet
}

// grows is how much more each sample weighs than the one before.
var grows = float32(math.Exp(float64(tenth) / float64(remembered)))

// addLater takes in a sample of nothing, when somebody looks: most samples of
// most containers are such.
func (s *spread) addLater() {
	if s.later++; s.later >= int(remembered/tenth) {
		s.catchUp()
	}
}

func (s *spread) catchUp() {
	n := s.later
	s.later = 0
	for range n {
		s.add(0, false)
	}
}

// add takes in a sample: the use, or more than any when all that was allowed was used.
func (s *spread) add(used mdp.MilliCPU, all bool) {
	s.catchUp()
	i := buckets - 1
	if !all {
		i = bucketOf(used)
	}
	if s.weight == 0 {
		s.weight, s.last = 1, i
	}
	if i > s.last {
		s.rises[i] += s.weight
		s.rises[s.last] -= s.weight
	}
	s.last = i
	s.weights[i] += s.weight
	s.sum += s.weight
	s.n++
	if s.weight *= grows; s.weight > 1e9 {
		for i := range s.weights {
			s.weights[i] /= s.weight
			s.rises[i] /= s.weight
		}
		s.sum /= s.weight
		s.weight = 1
	}
}

func bucketOf(used mdp.MilliCPU) int {
	if float64(used) <= leastUse {
		return 0
	}
	return min(buckets-2, int(math.Ceil(perOctave*math.Log2(float64(used)/leastUse))))
}

// highest is the most that a use in a bucket can be.
func highest(i int) float64 { return leastUse * math.Exp2(float64(i)/perOctave) }

// cheapest is the limit that costs least, of those above which the use rises in at most a share of the
// samples; a relief goes up to top, and stays there until the use is below again, and for more samples
// after that. It is a little above the use that it covers, so that a relief ends. costs is what is in force in the mean then;
// where relief is eased, that is less than what the limits were compared by.
// ok is false while too little is known.
func (s *spread) cheapest(top mdp.MilliCPU, share mdp.Ratio, more float32, eased bool) (limit, costs mdp.MilliCPU, ok bool) {
	s.catchUp()
	if s.n < enoughSamples {
		return 0, 0, false
	}
	best, above, rises := float64(top), float32(0), float32(0)
	limit, mean := top, best
	var use float32 // the sum of what eased relief is, of the samples above
	for i := buckets - 2; i >= 0; i-- {
		above += s.weights[i+1]
		rises += s.rises[i+1]
		use += s.weights[i+1] * float32(min(float64(top), easedOver*highest(i+1)))
		at := overPeak * highest(i)
		if at >= float64(top) || float64(rises/s.sum) > float64(share) {
			continue // a lower one may do: a burst with ups and downs of its own rises above it once
		}
		relieved := float64((above + more*rises) / s.sum)
		cost := at + relieved*(float64(top)-at)
		if cost >= worthwhile*best {
			continue
		}
		best, limit, mean = cost, mdp.MilliCPU(math.Ceil(at)), cost
		if begins := calmSamples * rises; eased && above > begins {
			mean -= float64((above - begins + more*rises) / s.sum * (float32(top) - use/above))
		}
	}
	return limit, mdp.MilliCPU(math.Ceil(mean)), true
}

// easedOver is how far eased relief is above the use, in the mean: it is a little above the highest one of a second. It is
// chosen; what it says of the loads in load_test.go is 1 to 41 % from what is in force, and 5 to 51 % without easing.
const easedOver = 1.5

// spread adds the newest sample to the spread of the container's use.
func (t *Track) spread() {
	if used, known := t.use(0, t.window()); known {
		t.uses.add(used, t.lane.open && (t.throttled() || t.full()))
	}
}

// Rest is the range of a container's limit at rest, for a share of the time in which it may be
// throttled. Below least, relief costs more than the limit saves, although it ends with the sample that shows
// that the use is below again, as it does at best. Above most, the limit costs more than relief does, although
// that ends when it does as a rule. Where the cheapest limit of all throttles too often, the share decides. costs is what
// is in force in the mean with most, relief included.
func (s *Sampler) Rest(t *Track, top mdp.MilliCPU, share mdp.Ratio) (least, most, costs mdp.MilliCPU, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least, _, ok = t.uses.cheapest(top, 1, 1, !t.lane.early)
	most, costs, _ = t.uses.cheapest(top, share, calmSamples, !t.lane.early)
	return min(least, most), most, costs, ok
}

// atRest is a rule's decision within the limit at rest: from below always, since below it relief costs more than the
// limit saves; and from above where the
// target allows throttling now and then: the lane gives what a peak needs, and takes it back. While a
// burst lasts the lane's relief does not come down to it.
//
// Where work may queue, the demand policy's limit stands as long as it costs less than that. And from above nothing comes
// down while the policy holds a spike: the lane's relief was too late for it.
func (c *managedContainer) atRest(s mdp.State, a mdp.Action) mdp.Action {
	queued := c.queues
	c.queues = false
	top := c.top().CPU()
	if top <= 0 || !s.Knows(mdp.CPULimit) || !c.sampler.Direct(c.track) {
		return a
	}
	limit := s.Limit.CPU
	if a.Sets.Has(mdp.CPULimit) {
		limit = a.Limit.CPU
	}
	target := c.target
	if queued { // what waits is slow, and says nothing of how slow it would be if it did not
		target = max(target, seldom)
	}
	least, most, costs, ok := c.sampler.Rest(c.track, top, target)
	if !ok {
		return a
	}
	if c.queues = c.mayQueue(limit, costs, queued, s.Limit.CPU); c.queues {
		return a
	}
	if target < seldom || c.policy.demand != nil && c.policy.demand.Holds() {
		most = top
	}
	if limit >= least*9/10 {
		least = 0 // what is hardly more is not worth a change
	}
	if rest := min(max(limit, least), most); rest != limit {
		return a.WithCPU(rest)
	}
	return a
}
