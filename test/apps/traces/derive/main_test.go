package main

import (
	"slices"
	"testing"
)

func TestWindowMeansLeaveOutAnIncompleteWindow(t *testing.T) {
	got := windowMeans([]float64{1, 3, 10, 20, 7}, 2)
	if want := []float64{2, 15}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
