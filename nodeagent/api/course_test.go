package api_test

import (
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

// course is one of ten seconds until a half, in which so much was used, and a core in one second.
func course(until int64, busy int) api.Course {
	c := api.Course{Until: until}
	for i := range api.MaxHalves {
		used := mdp.MilliCPU(100)
		if i/2 == busy {
			used = 1000
		}
		c.Use = append(c.Use, used)
	}
	return c
}

// What two have used together is of the same second, whenever their nodes have reported.
func TestWhatTwoHaveUsedTogetherIsOfTheSameSecond(t *testing.T) {
	short := course(100, 9)
	short.Use = short.Use[11:]
	for name, c := range map[string]struct {
		one, two api.Course
		want     mdp.MilliCPU
		ok       bool
	}{
		"at the same time":                         {course(100, 9), course(100, 9), 2000, true},
		"one after the other":                      {course(100, 9), course(100, 7), 1100, true},
		"half a second apart":                      {course(100, 9), course(99, 9), 1550, true},
		"the same second, reported five s apart":   {course(100, 4), course(90, 9), 2000, true},
		"other seconds, reported five s apart":     {course(100, 4), course(90, 7), 1100, true},
		"a busy second that only one report has":   {course(100, 9), course(90, 0), 200, true},
		"a busy second of more than five s before": {course(100, 0), course(100, 0), 200, true},
		"reported more than five s apart":          {course(100, 9), course(89, 9), 0, false},
		"far apart":                                {course(1<<62, 9), course(1, 9), 0, false},
		"too short":                                {course(100, 9), short, 0, false},
		"not known":                                {course(100, 9), api.Course{}, 0, false},
	} {
		for _, pair := range [][2]api.Course{{c.one, c.two}, {c.two, c.one}} {
			if got, ok := pair[0].Together(pair[1]); got != c.want || ok != c.ok {
				t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
			}
		}
	}
}

// A node's word for the course is bounded, as for all that it reports.
func TestAnImpossibleCourseIsRefused(t *testing.T) {
	node := mdp.Size{CPU: 2000, Memory: 1 << 30}
	for says, change := range map[string]func(*api.Course){
		"":                                  func(*api.Course) {},
		"course of 21 halves":               func(c *api.Course) { c.Use = append(c.Use, 1) },
		"until -1":                          func(c *api.Course) { c.Until = -1 },
		"until 0":                           func(c *api.Course) { c.Until = 0 },
		"a use of -1 millicores":            func(c *api.Course) { c.Use[3] = -1 },
		"a use of 3001 millicores: it must": func(c *api.Course) { c.Use[3] = 3001 },
	} {
		s := api.Summary{Course: course(100, 3)}
		change(&s.Course)
		if err := s.Check(node); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%v, want %q in it", err, says)
		}
	}
}
