package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
)

func TestEpisodesAreCutAtTheirLengthAndAtGaps(t *testing.T) {
	r := lifecycle.NewRecorder(7)
	r.Clock.Length = 3
	begin := time.Unix(1000, 0)
	var got []string
	// Between seconds 2 and 5 nothing is known.
	for _, at := range []int{0, 1, 5, 6, 7, 8} {
		one, episode, step := r.Add(mdp.Transition{
			State: mdp.State{At: begin.Add(time.Duration(at) * time.Second)}, RewardKnown: at != 6, Reward: 1,
			Next: mdp.State{At: begin.Add(time.Duration(at+1) * time.Second)},
		})
		got = append(got, fmt.Sprint(episode, ".", step)+map[bool]string{true: "!", false: ""}[one.Truncated])
	}
	if want := "7.0 7.1 8.0 8.1 8.2! 9.0"; strings.Join(got, " ") != want {
		t.Errorf("numbered %v, want %s", got, want)
	}
	if mean, _, _, ok := r.Profile.Totals(); !ok || mean != 100 {
		t.Errorf("mean reward %v, %v: a reward that is not known must not count", mean, ok)
	}
}
