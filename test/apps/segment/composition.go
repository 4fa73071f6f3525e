package segment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Limits of one request. A service reads compositions from its query, so a typing
// error must not cause an hour of work: 32 steps of 100 times a millisecond are about
// three seconds.
const (
	maxSteps = 32
	maxTimes = 100
)

// Composition is the work of one request: segments, one after the other.
type Composition []Step

// Step is a segment and how many times its default size to do.
type Step struct {
	Segment Segment
	Times   float64
}

// Size is the step's size in its segment's unit, at least 1.
func (s Step) Size() int {
	return max(1, int(math.Round(float64(s.Segment.Size)*s.Times)))
}

// Parse reads a composition such as
//
//	json:2,compress,sleep:0.5
//
// where the number (1 if left out) multiplies the segment's default size. The
// empty text is the empty composition: no work of its own.
func Parse(text string) (Composition, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	words := strings.Split(text, ",")
	if len(words) > maxSteps {
		return nil, fmt.Errorf("composition of %d segments: at most %d", len(words), maxSteps)
	}
	c := make(Composition, 0, len(words))
	for _, word := range words {
		step, err := parseStep(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("composition %q: %w", text, err)
		}
		c = append(c, step)
	}
	return c, nil
}

func parseStep(word string) (Step, error) {
	name, number, sized := strings.Cut(word, ":")
	if name == "" {
		return Step{}, errors.New("a segment without a name: want name or name:times")
	}
	s, err := Find(name)
	if err != nil {
		return Step{}, err
	}
	if !sized {
		return Step{s, 1}, nil
	}
	times, err := strconv.ParseFloat(number, 64)
	if err != nil || !(times > 0 && times <= maxTimes) {
		return Step{}, fmt.Errorf("segment %q: times %q: must be a number over 0, at most %d",
			name, number, maxTimes)
	}
	return Step{s, times}, nil
}

// String is the text that Parse reads.
func (c Composition) String() string {
	words := make([]string, len(c))
	for i, s := range c {
		words[i] = s.Segment.Name + ":" + strconv.FormatFloat(s.Times, 'g', -1, 64)
	}
	return strings.Join(words, ",")
}

// Run does the steps in order and stops at the first error, which names the
// step.
func (c Composition) Run(ctx context.Context, r *rand.Rand) error {
	for _, s := range c {
		if err := s.Segment.Run(ctx, r, s.Size()); err != nil {
			return fmt.Errorf("segment %s with %d %s: %w", s.Segment.Name, s.Size(), s.Segment.Unit, err)
		}
	}
	return nil
}
