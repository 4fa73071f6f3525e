package sim

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Draws by table: a random number of 12 bits picks a quantile. It costs a memory access where an exact draw costs a
// logarithm or a loop, and the tails reach the quantile 1 - 1/8192, beyond what a p99 sees.
const (
	tableBits = 12
	tableSize = 1 << tableBits
	tableMask = tableSize - 1
)

var normalTable, expTable = func() (n, e [tableSize]float64) {
	for i := range n {
		q := (float64(i) + 0.5) / tableSize
		n[i] = mathext.NormalQuantile(q)
		e[i] = -math.Log1p(-q)
	}
	return n, e
}()

// gammaTable are the quantiles of a gamma distribution with mean 1.
func gammaTable(variation float64) *[tableSize]float64 {
	k := 1 / (variation * variation)
	t := new([tableSize]float64)
	for i := range t {
		t[i] = mathext.GammaIncRegInv(k, (float64(i)+0.5)/tableSize) / k
	}
	return t
}

// poisson draws a number of arrivals with mean m from a uniform number u in [0, 1) and, for larger means, a normal one.
func poisson(m, u, z float64) float64 {
	if m > few {
		return max(0, math.Floor(m+math.Sqrt(m)*z+(z*z-1)/6+0.5)) // Cornish-Fisher
	}
	p := none(m)
	sum, n := p, 0.0
	for u > sum && n < 60 {
		n++
		p *= m * inverse[int(n)]
		sum += p
	}
	return n
}

// few is the mean up to which Poisson's distribution is summed.
const few = 10

// none is exp(-m), the chance of no arrival, for m in [0, few]: by table and the first terms of the series.
func none(m float64) float64 {
	k := int(m * 64)
	r := float64(k)/64 - m
	return noneTable[k] * (1 + r*(1+r*(0.5+r*(1.0/6))))
}

var noneTable = func() (t [few*64 + 1]float64) {
	for k := range t {
		t[k] = math.Exp(-float64(k) / 64)
	}
	return t
}()

var inverse = func() (t [64]float64) {
	for i := 1; i < len(t); i++ {
		t[i] = 1 / float64(i)
	}
	return t
}()

// queue is the chance that an arrival waits for one of n servers at offered load a (Erlang's C formula), a below n.
func queue(n int, a float64) float64 {
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
