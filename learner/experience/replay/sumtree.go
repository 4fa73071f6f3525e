package replay

// sumTree keeps non-negative numbers and finds by a running sum, both in log(n)
// steps (Schaul et al. 2016, appendix B.2.1). Every inner node is computed again
// as the sum of its two children whenever one of them changes, so that rounding
// does not add up over the changes: the tree is always what one built from its
// leaves would be.
type sumTree struct {
	leaves int       // a power of two
	node   []float64 // the root is 1, the children of k are 2k and 2k+1, leaf i is leaves+i
}

// grown is a tree of at least n leaves with the same numbers. The sum and what is
// found stay the same bit by bit: the new leaves are 0, and adding 0 is exact.
func (t *sumTree) grown(n int) sumTree {
	larger := newSumTree(n)
	for i := range t.leaves {
		if x := t.at(i); x != 0 {
			larger.set(i, x)
		}
	}
	return larger
}

func newSumTree(n int) sumTree {
	leaves := 1
	for leaves < n {
		leaves *= 2
	}
	return sumTree{leaves: leaves, node: make([]float64, 2*leaves)}
}

func (t *sumTree) at(i int) float64 { return t.node[t.leaves+i] }

func (t *sumTree) sum() float64 { return t.node[1] }

func (t *sumTree) set(i int, x float64) {
	k := t.leaves + i
	t.node[k] = x
	for k /= 2; k > 0; k /= 2 {
		t.node[k] = t.node[2*k] + t.node[2*k+1]
	}
}

// find the leaf in which the running sum passes x, from 0 to the sum. A leaf of
// 0 is never found, also when rounding has brought x up to the sum or beyond,
// unless all are 0.
func (t *sumTree) find(x float64) int {
	k := 1
	for k < t.leaves {
		k *= 2
		if left := t.node[k]; x >= left && t.node[k+1] > 0 {
			x -= left
			k++
		}
	}
	return k - t.leaves
}
