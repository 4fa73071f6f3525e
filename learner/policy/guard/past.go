package guard

import "time"

// past is the values that can still be the highest one of some time: each is higher than all that were seen after it.
type past []seen

type seen struct {
	At    time.Time `json:"at"`
	Value int64     `json:"value"`
}

func (p *past) see(at time.Time, value int64) {
	kept := *p
	for len(kept) > 0 && kept[len(kept)-1].Value <= value {
		kept = kept[:len(kept)-1]
	}
	*p = append(kept, seen{at, value})
}

// highest is the highest value of the time before now, and forgets what was before that; 0: nothing was seen.
func (p *past) highest(now time.Time, within time.Duration) int64 {
	n := 0
	for n < len(*p) && now.Sub((*p)[n].At) >= within {
		n++
	}
	*p = append((*p)[:0], (*p)[n:]...)
	if len(*p) == 0 {
		return 0
	}
	return (*p)[0].Value
}
