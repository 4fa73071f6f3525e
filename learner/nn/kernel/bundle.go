package kernel

// MeanOfBundles computes the mean rows of bundles of sequences. x is [time][sequences][width], as a GRU writes it; the
// sequences of bundle i are those from i*each on, and each has as many steps as lengths says. to is [bundles][width]: the
// mean over the steps of a sequence, and then over the sequences of the bundle that have any. A bundle that has none is zero.
func MeanOfBundles[T Float](x []T, width, each int, lengths []int, to []T) {
	clear(to)
	weighted(lengths, each, func(bundle, sequence, step int, weight T) {
		out := to[bundle*width:][:width]
		for j, v := range x[(step*len(lengths)+sequence)*width:][:width] {
			out[j] += weight * v
		}
	})
}

// MeanOfBundlesBack is the gradient of x for the gradient of what MeanOfBundles computes. Rows beyond a length get zero.
func MeanOfBundlesBack[T Float](grad []T, width, each int, lengths []int, dx []T) {
	clear(dx)
	weighted(lengths, each, func(bundle, sequence, step int, weight T) {
		to := dx[(step*len(lengths)+sequence)*width:][:width]
		for j, v := range grad[bundle*width:][:width] {
			to[j] = weight * v
		}
	})
}

// weighted goes through all steps that there are, with each one's weight in the mean of its bundle.
func weighted[T Float](lengths []int, each int, do func(bundle, sequence, step int, weight T)) {
	for first := 0; first < len(lengths); first += each {
		there := 0
		for _, n := range lengths[first:][:each] {
			if n > 0 {
				there++
			}
		}
		for i, n := range lengths[first:][:each] {
			for step := range n {
				do(first/each, first+i, step, 1/T(there*n))
			}
		}
	}
}
