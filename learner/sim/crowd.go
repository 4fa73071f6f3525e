package sim

// crowd is the part of the arrivals of a slice that come together: throttling has held
// them, or those that call them, until the start of a slice.
//
// The arrivals have ranks from 0 to 1, in the order in which they come. The others
// come evenly, before and after the crowd.
type crowd struct {
	share float64 // of the arrivals
	at    float64 // when they come, as a share of the slice; below 0 it is in the slice before
}

// first is the lowest rank in the crowd.
func (c crowd) first() float64 { return (1 - c.share) * c.at }

// has reports whether an arrival with a rank is in the crowd.
func (c crowd) has(rank float64) bool { return rank >= c.first() && rank < c.first()+c.share }

// time is when the arrival with a rank comes, as a share of the slice.
func (c crowd) time(rank float64) float64 {
	switch {
	case c.share == 0:
		return rank
	case rank < c.first():
		return rank / (1 - c.share)
	case rank < c.first()+c.share || c.share == 1:
		return c.at
	}
	return (rank - c.share) / (1 - c.share)
}

// rank is the rank of one that comes alone at a time.
func (c crowd) rank(time float64) float64 {
	if time > c.at {
		return c.share + (1-c.share)*time
	}
	return (1 - c.share) * time
}
