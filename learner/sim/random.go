package sim

import (
	"math"

	"github.com/hashicorp/golang-lru/v2"
	"gonum.org/v1/gonum/mathext"
)

// Random numbers come from tables: a random number of 12 bits selects a
// quantile. This costs one memory access; an exact sample costs a logarithm or
// a loop. The tables reach the quantile 1 - 1/8192, which is enough for a p99.
const (
	tableBits = 12
	tableSize = 1 << tableBits
	tableMask = tableSize - 1
)

// normalTable and expTable hold the quantiles of the normal and the exponential
// distribution.
var normalTable, expTable = func() (n, e [tableSize]float64) {
	for i := range n {
		q := (float64(i) + 0.5) / tableSize
		n[i] = mathext.NormalQuantile(q)
		e[i] = -math.Log1p(-q)
	}
	return n, e
}()

// gammaTables holds the tables that were used last, at most 8 MiB of them: one
// takes longer to make than an episode of a hundred steps to simulate.
var gammaTables, _ = lru.New[float64, *[tableSize]float64](keptTables) // an error is of a size below 1

const keptTables = 256

// gammaTable returns the quantiles of a gamma distribution with mean 1 and the
// given coefficient of variation. Worlds share it: nobody writes to it.
func gammaTable(variation float64) *[tableSize]float64 {
	if t, ok := gammaTables.Get(variation); ok {
		return t
	}
	k := 1 / (variation * variation)
	t := new([tableSize]float64)
	for i := range t {
		t[i] = mathext.GammaIncRegInv(k, (float64(i)+0.5)/tableSize) / k
	}
	gammaTables.Add(variation, t)
	return t
}

// poisson samples a number of arrivals with mean m. Its inputs are a uniform
// random number u in [0, 1) and, for means above maxSummedMean, a normal random
// number z.
func poisson(m, u, z float64) float64 {
	if m > maxSummedMean {
		return max(0, math.Floor(m+math.Sqrt(m)*z+(z*z-1)/6+0.5)) // Cornish-Fisher
	}
	p := noArrival(m)
	sum, n := p, 0.0
	for u > sum && n < 60 {
		n++
		p *= m * inverse[int(n)]
		sum += p
	}
	return n
}

// maxSummedMean is the highest mean for which poisson sums the probabilities.
const maxSummedMean = 10

// noArrival is exp(-m), the probability of no arrival, for m in [0,
// maxSummedMean]. It uses a table and the first terms of the series.
func noArrival(m float64) float64 {
	k := int(m * 64)
	r := float64(k)/64 - m
	return noArrivalTable[k] * (1 + r*(1+r*(0.5+r*(1.0/6))))
}

// noArrivalTable holds exp(-k/64).
var noArrivalTable = func() (t [maxSummedMean*64 + 1]float64) {
	for k := range t {
		t[k] = math.Exp(-float64(k) / 64)
	}
	return t
}()

// inverse holds 1/i.
var inverse = func() (t [64]float64) {
	for i := 1; i < len(t); i++ {
		t[i] = 1 / float64(i)
	}
	return t
}()

// erlangC is the probability that an arrival waits when there are n servers and
// the offered load is a (Erlang's C formula). It is 1 when a is n or more.
func erlangC(n int, a float64) float64 {
	if a <= 0 {
		return 0
	}
	if a >= float64(n) {
		return 1
	}
	rho := a / float64(n)
	if n > 64 {
		return math.Pow(rho, math.Sqrt(2*float64(n+1))) // Sakasegawa's approximation
	}
	inverseB, inverseA := 1.0, 1/a // Erlang B's recursion, on its inverse
	for k := 1; k <= n; k++ {
		inverseB = 1 + inverseB*float64(k)*inverseA
	}
	return 1 / (inverseB*(1-rho) + rho)
}

// binomial samples how many of n requests do something that each does with
// probability p, from 64 random bits.
func binomial(n, p float64, u uint64) float64 {
	if n <= 0 || p <= 0 {
		return 0
	}
	if mean := n * p; mean > 8 && n-mean > 8 {
		z := normalTable[u&tableMask]
		deviation := math.Sqrt(mean * (1 - p))
		k := math.Floor(mean + deviation*z + (1-2*p)*(z*z-1)/6 + 0.5) // Cornish-Fisher
		return max(0, min(n, k))
	}
	if p > 0.5 {
		return n - binomial(n, 1-p, u)
	}
	none := 1.0 // (1-p)^n
	for k, power := int(n), 1-p; k > 0; k, power = k>>1, power*power {
		if k&1 == 1 {
			none *= power
		}
	}
	return countUp(n, none, p/(1-p), u)
}

// countUp is the inverse of a binomial distribution function, of which the probability
// of none and the odds of one are known. It takes few steps when the mean is small.
func countUp(n, none, odds float64, u uint64) (k float64) {
	x := float64(u>>11) * 0x1p-53
	for q, sum := none, none; x > sum && k < n; sum += q {
		q *= odds * (n - k) / (k + 1)
		k++
	}
	return k
}

// chance is a probability, with what makes a binomial number of few requests quick.
type chance struct {
	p    float64
	odds float64      // of the rarer of the two outcomes
	none [few]float64 // by number of requests: the probability that none has it
}

// few is the length of the table in a chance.
const few = 32

// set makes c the probability p, in [0, 1].
func (c *chance) set(p float64) {
	if p == c.p && c.none[0] == 1 {
		return
	}
	rare := min(p, 1-p)
	c.p, c.odds = p, rare/(1-rare)
	c.none[0] = 1
	for n := 1; n < few; n++ {
		c.none[n] = c.none[n-1] * (1 - rare)
	}
}

// of samples how many of n requests have the outcome, from 64 random bits.
func (c *chance) of(n float64, u uint64) float64 {
	if n >= few {
		return binomial(n, c.p, u)
	}
	k := countUp(n, c.none[int(n)], c.odds, u)
	if c.p > 0.5 {
		return n - k
	}
	return k
}
