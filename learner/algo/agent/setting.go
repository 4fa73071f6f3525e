package agent

import (
	"fmt"
	"math"
)

// BadSetting makes the errors of an algorithm's settings. They name the
// algorithm, the setting, its value, and what it must be.
func BadSetting(algorithm string) func(name string, value any, rule string) error {
	return func(name string, value any, rule string) error {
		return fmt.Errorf("%s: %s %v: it must be %s", algorithm, name, value, rule)
	}
}

// CheckBounds returns nil for bounds of continuous actions that are finite, the
// lower one below the upper one. There are as many lower as upper bounds.
func CheckBounds(algorithm string, low, high []float64) error {
	for i := range low {
		if !(high[i] > low[i]) || math.IsInf(high[i], 0) || math.IsInf(low[i], 0) {
			return BadSetting(algorithm)("bounds", []float64{low[i], high[i]}, "finite, the lower one first")
		}
	}
	return nil
}
