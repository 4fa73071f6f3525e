package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// series is one table of an answer to InfluxQL:
//
//	{"results": [{"statement_id": 0, "series": [
//	    {"name": "transitions", "tags": {"workload": "a"}, "columns": ["time", "reward"], "values": [[1, 0.5], [2, null]]}]}]}
//
// An error replaces the results or one result, and has status 200. "partial"
// means that the server truncated the answer at its own limit.
type series struct {
	tags    map[string]string
	columns map[string]int
	values  [][]any // a json.Number, a string, a bool, or nil for a field that the point does not have
}

func decodeAnswer(text []byte) ([]series, error) {
	var answer struct {
		Error   string
		Results []struct {
			Error   string
			Partial bool
			Series  []struct {
				Tags    map[string]string
				Columns []string
				Values  [][]any
				Partial bool
			}
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // a float64 has no room for all int64
	if err := d.Decode(&answer); err != nil {
		return nil, fmt.Errorf("%.100q is not what /query answers: %w", text, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%.100q goes on after its end", text)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("influxdb says %q", answer.Error)
	}
	var all []series
	for _, result := range answer.Results {
		if result.Error != "" {
			return nil, fmt.Errorf("influxdb says %q", result.Error)
		}
		for _, one := range result.Series {
			if result.Partial || one.Partial {
				return nil, errors.New("influxdb cut it short: its max-row-limit is too low")
			}
			s := series{tags: one.Tags, columns: map[string]int{}, values: one.Values}
			for i, name := range one.Columns {
				s.columns[name] = i
			}
			for i, value := range one.Values {
				if len(value) != len(one.Columns) {
					return nil, fmt.Errorf("row %d has %d values for %d columns", i, len(value), len(one.Columns))
				}
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// point is one row of a series.
type point struct {
	series
	row int
}

func (p point) number(column string) (string, error) {
	i, ok := p.columns[column]
	if !ok {
		return "", fmt.Errorf("a point has no %s", column)
	}
	n, ok := p.values[p.row][i].(json.Number)
	if !ok {
		return "", fmt.Errorf("a point's %s is %v: it must be a number", column, p.values[p.row][i])
	}
	return n.String(), nil
}

func (p point) integer(column string) (int64, error) {
	text, err := p.number(column)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("a point's %s: %w", column, err)
	}
	return v, nil
}

// within is an integer that has to be in [0, most].
func (p point) within(column string, most int64) (int64, error) {
	v, err := p.integer(column)
	if err == nil && (v < 0 || v > most) {
		err = fmt.Errorf("a point's %s is %d: it must be in [0, %d]", column, v, most)
	}
	return v, err
}

// optional is within, or otherwise where the point does not have the field.
func (p point) optional(column string, most, otherwise int64) (int64, error) {
	if i, ok := p.columns[column]; !ok || p.values[p.row][i] == nil {
		return otherwise, nil
	}
	return p.within(column, most)
}

func (p point) float(column string) (float64, error) {
	text, err := p.number(column)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("a point's %s: %w", column, err)
	}
	return v, nil
}

// transition is the transition of the point. It is the inverse of appendLine.
func (p point) transition() (t mdp.Transition, err error) {
	defer func() {
		if err != nil {
			when, _ := p.integer("time")
			err = fmt.Errorf("episode %d step %d: %w", when>>logicalBits, when&last, err)
		}
	}()
	reward, err := p.float("reward")
	if err != nil {
		return t, err
	}
	terminated, err := p.within("terminated", 1)
	if err != nil {
		return t, err
	}
	truncated, err := p.within("truncated", 1)
	if err != nil {
		return t, err
	}
	// Older points do not have these fields. Their rewards are known, and
	// their actions were applied.
	known, err := p.optional("reward_known", 1, 1)
	if err != nil {
		return t, err
	}
	effect, err := p.optional("effect", math.MaxUint8, int64(mdp.Applied))
	if err != nil {
		return t, err
	}
	if !mdp.Effect(effect).Known() {
		return t, fmt.Errorf("a point's effect is %d: this program knows none of that number", effect)
	}
	state, err := p.state("state_")
	if err != nil {
		return t, err
	}
	sets, err := p.within("action_sets", math.MaxUint32)
	if err == nil {
		err = checkSets(mdp.Set(sets))
	}
	if err != nil {
		return t, err
	}
	action, err := p.signals("action_", mdp.State{Observed: mdp.Set(sets)})
	if err != nil {
		return t, err
	}
	clipped, err := p.within("action_clipped", math.MaxUint16)
	if err != nil {
		return t, err
	}
	next, err := p.state("next_")
	if err != nil {
		return t, err
	}
	return mdp.Transition{
		State:       state,
		Action:      asAction(action, mdp.Clips(clipped)),
		Reward:      mdp.Reward(reward),
		Next:        next,
		Effect:      mdp.Effect(effect),
		RewardKnown: known == 1,
		Terminated:  terminated == 1,
		Truncated:   truncated == 1,
	}, nil
}

func (p point) state(prefix string) (mdp.State, error) {
	seconds, err := p.integer(prefix + "at")
	if err != nil {
		return mdp.State{}, err
	}
	nanos, err := p.within(prefix+"at_nanos", int64(time.Second-1))
	if err != nil {
		return mdp.State{}, err
	}
	observed, err := p.within(prefix+"observed", math.MaxUint32)
	if err == nil {
		err = checkObserved(mdp.Set(observed))
	}
	if err != nil {
		return mdp.State{}, err
	}
	return p.signals(prefix, mdp.State{At: time.Unix(seconds, nanos).UTC(), Observed: mdp.Set(observed)})
}

// signals reads those in s.Observed into s.
func (p point) signals(prefix string, s mdp.State) (mdp.State, error) {
	for one := range s.Observed.Signals() {
		name := prefix + fieldName(one)
		if one.Integer() {
			v, err := p.integer(name)
			if err != nil {
				return s, err
			}
			one.SetInt(&s, v)
			continue
		}
		v, err := p.float(name)
		if err != nil {
			return s, err
		}
		one.SetFloat(&s, v)
	}
	return s, nil
}

// total is the sum over a window, and whether the episode is complete.
func (p point) total() (t total, ended bool, err error) {
	start, err := p.integer("time")
	if err != nil {
		return t, false, err
	}
	reward, err := p.float("reward")
	if err != nil {
		return t, false, err
	}
	terminated, err := p.within("terminated", 1)
	if err != nil {
		return t, false, err
	}
	truncated, err := p.within("truncated", 1)
	if err != nil {
		return t, false, err
	}
	return total{episode: int(start >> logicalBits), reward: reward}, terminated+truncated > 0, nil
}
