package segment

import (
	"context"
	"math/rand/v2"
	"sync"
)

// sales is a table by column, as an analytical database would hold it.
type sales struct {
	region []uint8 // below regions
	pieces []int32
	cents  []int64
}

const regions = 16

// sharedSales has 2^18 rows, 3.25 MiB: more than a core's own cache, and
// little compared with a container's limit.
var sharedSales = sync.OnceValue(func() sales {
	return randomSales(rand.New(rand.NewPCG(18, 16)), 1<<18)
})

func randomSales(r *rand.Rand, rows int) sales {
	s := sales{make([]uint8, rows), make([]int32, rows), make([]int64, rows)}
	for i := range rows {
		s.region[i] = uint8(r.IntN(regions))
		s.pieces[i] = r.Int32N(100)
		s.cents[i] = r.Int64N(10_000)
	}
	return s
}

func runTable(ctx context.Context, r *rand.Rand, size int) error {
	s := sharedSales()
	return batches(ctx, size, 64, func(thousands int) error {
		rows := 1000 * thousands
		first := r.IntN(len(s.region) - rows)
		s.turnover(first, first+rows, r.Int32N(50))
		return nil
	})
}

// turnover answers: select region, sum(pieces*cents) where pieces >= least
// group by region, over the rows from first up to end.
func (s sales) turnover(first, end int, least int32) (cents [regions]int64) {
	region := s.region[first:end]
	pieces := s.pieces[first:end]
	price := s.cents[first:end]
	for i, n := range pieces {
		if n >= least {
			cents[region[i]%regions] += int64(n) * price[i]
		}
	}
	return cents
}
