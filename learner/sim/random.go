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
// root is m's square root, e is exp(-m).
func poisson(m, root, e, u, z float64) float64 {
	if m > 10 {
		return max(0, math.Floor(m+root*z+(z*z-1)/6+0.5)) // Cornish-Fisher
	}
	p, sum, n := e, e, 0.0
	for u > sum && n < 60 {
		n++
		p *= m * inverse[int(n)]
		sum += p
	}
	return n
}

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
	b := 1.0 // Erlang B, by its recursion
	for k := 1; k <= n; k++ {
		b = a * b / (float64(k) + a*b)
	}
	return b / (1 - rho*(1-b))
}
