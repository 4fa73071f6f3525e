package nn

// Best is the place of the largest value among the legal ones, the first of
// equal ones. Legal nil allows all. Without a legal one it is 0.
func Best(values []float64, legal []bool) int {
	best := -1
	for i, v := range values {
		if legal != nil && !legal[i] {
			continue
		}
		if best < 0 || v > values[best] {
			best = i
		}
	}
	return max(best, 0)
}

// RowOf is row i of a mask [rows][n]; nil of a nil mask.
func RowOf(mask []bool, i, n int) []bool {
	if mask == nil {
		return nil
	}
	return mask[i*n : (i+1)*n]
}
