package trajectory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"github.com/cenkalti/backoff/v5"
)

// Influx is a Store in an InfluxDB. It writes with the line protocol, and reads
// with InfluxQL through the endpoint /query of 1.x, which 2.x and 3.x also
// have.
//
// A transition is a point of the measurement "transitions" with the tag
// workload. The timestamp in nanoseconds is the logical time:
//
//	timestamp = episode * 2^31 + step
//
// A transition that is written again replaces the same point. The order of time
// is the logical order. An episode is a window of 2^31 ns (about two seconds; a
// shard of one week holds 280,000 episodes). All timestamps are between 1970
// and 2116, so the retention of the database must be infinite. The fields are
//
//	reward, terminated, truncated                    0 and 1, to be summed and compared
//	state_at, state_at_nanos, state_observed         the same with next_
//	state_cpu_limit, state_latency, ...              a field for each signal in state_observed; the same with next_
//	action_sets, action_clipped, action_cpu_limit, ...
//
// All are integers, except reward, ratios and rates. InfluxDB merges the fields
// of a point that is written again, so fields of an earlier write can remain.
// Only the fields in state_observed, next_observed and action_sets are valid.
type Influx struct {
	*buffer
	c    InfluxConfig
	name string // for errors: without secrets
}

const measurement = "transitions"

// pageOfPoints and pageOfEpisodes limit an answer to about 1 MB.
const (
	pageOfPoints   = 500
	pageOfEpisodes = 10000
)

// longestAnswer is the maximum size of an answer in bytes; a page is much
// smaller.
const longestAnswer = 64 << 20

// InfluxConfig is the address of an InfluxDB, and its timeouts.
type InfluxConfig struct {
	URL      string // such as http://influxdb:8086
	Database string // to read; in 2.x the one that is mapped to the bucket, in 3.x the bucket

	User, Password string // of 1.x, when it asks for them

	// Bucket says to write by /api/v2/write, as 2.x and 3.x want it, and not by
	// /write into Database. Token is for it, and Org for 2.x.
	Bucket, Org, Token string

	Timeout time.Duration // of one request; 0 is 5 s
	Tries   uint          // of one request, when InfluxDB is down, slow or busy; 0 is 3
	Pause   time.Duration // before the second try, growing for later ones; 0 is 100 ms
}

// Check is nil for an address and timeouts that make sense. Otherwise it names what is wrong.
func (c InfluxConfig) Check() error {
	_, err := c.withDefaults()
	return err
}

func (c InfluxConfig) withDefaults() (InfluxConfig, error) {
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Tries == 0 {
		c.Tries = 3
	}
	if c.Pause == 0 {
		c.Pause = 100 * time.Millisecond
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return c, errors.New("influxdb's url cannot be parsed") // it may hold a password: it is not repeated
	case u.User != nil:
		return c, errors.New("influxdb's url has a user: put it into User and Password, for urls are logged")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "":
		return c, fmt.Errorf("influxdb's url %q: it must be like http://host:8086", c.URL)
	case c.Database == "":
		return c, errors.New("influxdb's database is empty: it is where to read")
	case c.Timeout < 0 || c.Pause < 0:
		return c, fmt.Errorf("influxdb's timeout %v and pause %v: neither may be negative", c.Timeout, c.Pause)
	}
	c.URL = strings.TrimSuffix(c.URL, "/")
	return c, nil
}

// OpenInflux creates the store. It does not connect: a workload can run while
// InfluxDB is down.
func OpenInflux(c InfluxConfig, b Buffering) (*Influx, error) {
	c, err := c.withDefaults()
	if err == nil {
		b, err = b.withDefaults()
	}
	if err != nil {
		return nil, fmt.Errorf("opening a trajectory store: %w", err)
	}
	s := &Influx{c: c, name: c.URL + " database " + c.Database}
	s.buffer = newBuffer(b, s.name, s.put)
	return s, nil
}

// Close implements [Store].
func (s *Influx) Close() error { return s.close() }

// put writes a batch. After an error InfluxDB can contain a part of it; a
// second write replaces these points.
func (s *Influx) put(ctx context.Context, rows []row) error {
	var lines []byte
	for i := range rows {
		lines = appendLine(lines, &rows[i])
	}
	path, query := "/write", url.Values{"db": {s.c.Database}, "precision": {"ns"}}
	if s.c.Bucket != "" {
		path, query = "/api/v2/write", url.Values{"org": {s.c.Org}, "bucket": {s.c.Bucket}, "precision": {"ns"}}
	}
	_, err := s.ask(ctx, http.MethodPost, path, query, string(lines))
	return err
}

// ask sends a request until it succeeds, at most Tries times.
func (s *Influx) ask(ctx context.Context, method, path string, query url.Values, body string) ([]byte, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = s.c.Pause
	answer, err := backoff.Retry(ctx, func() ([]byte, error) { return s.once(ctx, method, path, query, body) },
		backoff.WithBackOff(pause), backoff.WithMaxTries(s.c.Tries), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return nil, fmt.Errorf("%s %s%s: %w", method, s.c.URL, path, err)
	}
	return answer, nil
}

// once sends a request. An error is permanent when another try cannot succeed.
func (s *Influx) once(ctx context.Context, method, path string, query url.Values, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.c.URL+path+"?"+query.Encode(), strings.NewReader(body))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	switch {
	case s.c.Token != "":
		request.Header.Set("Authorization", "Token "+s.c.Token)
	case s.c.User != "":
		request.SetBasicAuth(s.c.User, s.c.Password)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // ask names the url, without the query
		}
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	case len(answer) > longestAnswer:
		return nil, backoff.Permanent(fmt.Errorf("the answer is longer than %d bytes", longestAnswer))
	case response.StatusCode/100 == 2:
		return answer, nil
	}
	err = fmt.Errorf("%s: %.300q", response.Status, answer)
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500 {
		return nil, err
	}
	return nil, backoff.Permanent(err)
}

// query sends an InfluxQL query.
func (s *Influx) query(ctx context.Context, q string) ([]series, error) {
	answer, err := s.ask(ctx, http.MethodGet, "/query", url.Values{
		"db":      {s.c.Database},
		"epoch":   {"ns"},
		"chunked": {"false"},
		"q":       {q},
	}, "")
	if err != nil {
		return nil, err
	}
	all, err := decodeAnswer(answer)
	if err != nil {
		return nil, fmt.Errorf("the answer to %s: %w", q, err)
	}
	return all, nil
}

// timestamp is the logical time of a point.
func timestamp(episode, step int) int64 { return int64(episode)<<logicalBits | int64(step) }

// span is a range of timestamps in nanoseconds. It includes both ends.
type span struct{ from, to int64 }

// always is the range of all points. Without an end InfluxDB uses the current
// time, and without a start 3.x uses yesterday.
var always = span{0, timestamp(last, last)}

func (a span) String() string { return fmt.Sprintf("time >= %d AND time <= %d", a.from, a.to) }

// quote is a string of InfluxQL. A workload's name has no backslash and no line
// break.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" }

// pages queries the points of a workload in a span, page by page. It checks
// that the timestamps are in the span and in order.
func (s *Influx) pages(ctx context.Context, what, workload string, at span, group string, newest bool,
	page int) iter.Seq2[point, error] {
	order := "ASC"
	if newest {
		order = "DESC"
	}
	return func(yield func(point, error) bool) {
		for at.from <= at.to {
			all, err := s.query(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE workload = %s AND %v %sORDER BY time %s LIMIT %d",
				what, measurement, quote(workload), at, group, order, page))
			if err != nil {
				yield(point{}, err)
				return
			}
			n := 0
			for _, one := range all {
				for i := range one.values {
					p := point{one, i}
					when, err := p.integer("time")
					if err == nil && (when < at.from || when > at.to) {
						err = fmt.Errorf("a point at %d, outside of what was asked: %v", when, at)
					}
					if !yield(p, err) || err != nil {
						return
					}
					if newest {
						at.to = when - 1
					} else {
						at.from = when + 1
					}
					n++
				}
			}
			if n < page {
				return
			}
		}
	}
}

// transitions reads the transitions of a span.
func (s *Influx) transitions(ctx context.Context, workload string, at span, newest bool,
	page int) iter.Seq2[mdp.Transition, error] {
	return func(yield func(mdp.Transition, error) bool) {
		for p, err := range s.pages(ctx, "*", workload, at, "", newest, page) {
			var t mdp.Transition
			if err == nil {
				t, err = p.transition()
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// Episode implements [Store].
func (s *Influx) Episode(ctx context.Context, workload string, episode int) (mdp.Trajectory, error) {
	t, err := s.episode(ctx, workload, episode)
	if err != nil {
		return mdp.Trajectory{}, fmt.Errorf("reading episode %d of workload %q from %s: %w", episode, workload, s.name, err)
	}
	return t, nil
}

func (s *Influx) episode(ctx context.Context, workload string, episode int) (mdp.Trajectory, error) {
	if err := checkWorkload(workload); err != nil {
		return mdp.Trajectory{}, err
	}
	if episode < 0 || episode > last {
		return mdp.Trajectory{}, ErrNotFound // and what is shifted would be another episode's
	}
	t := mdp.Trajectory{Workload: workload, Episode: episode}
	for one, err := range s.transitions(ctx, workload, span{
		timestamp(episode, 0), timestamp(episode, last),
	}, false, pageOfPoints) {
		if err != nil {
			return mdp.Trajectory{}, err
		}
		t.Steps = append(t.Steps, one)
	}
	if len(t.Steps) == 0 {
		return mdp.Trajectory{}, ErrNotFound
	}
	return t, nil
}

// total is the reward of a complete episode.
type total struct {
	episode int
	reward  float64
}

// totals reads the totals of a workload, the newest first.
func (s *Influx) totals(ctx context.Context, workload string) iter.Seq2[total, error] {
	return func(yield func(total, error) bool) {
		window := fmt.Sprintf("GROUP BY time(%dns) fill(none) ", int64(1)<<logicalBits)
		// A page ends at the window of an episode, so that the next one begins
		// with a whole episode: the time of a window is its start.
		for p, err := range s.pages(ctx, "SUM(reward) AS reward, MAX(terminated) AS terminated, MAX(truncated) AS truncated",
			workload, always, window, true, pageOfEpisodes) {
			var t total
			var ended bool
			if err == nil {
				t, ended, err = p.total()
			}
			if err == nil && !ended {
				continue
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// Top implements [Store]. It queries the totals of all episodes, and then m episodes.
func (s *Influx) Top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error) {
	best, err := s.top(ctx, workload, m)
	if err != nil {
		return nil, fmt.Errorf("reading the %d best episodes of workload %q from %s: %w", m, workload, s.name, err)
	}
	return best, nil
}

func (s *Influx) top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error) {
	if err := checkAsk(workload, "the number of episodes", m); err != nil {
		return nil, err
	}
	var all []total
	for t, err := range s.totals(ctx, workload) {
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b total) int { // stable: the newer of two equal ones comes first
		switch {
		case a.reward > b.reward:
			return -1
		case a.reward < b.reward:
			return 1
		}
		return 0
	})
	best := make([]mdp.Trajectory, 0, min(m, len(all)))
	for _, t := range all[:min(m, len(all))] {
		one, err := s.episode(ctx, workload, t.episode)
		if err != nil {
			return nil, fmt.Errorf("episode %d: %w", t.episode, err)
		}
		best = append(best, one)
	}
	return best, nil
}

// Rewards implements [Store].
func (s *Influx) Rewards(ctx context.Context, workload string, n int) ([]float64, error) {
	wrap := func(err error) error {
		return fmt.Errorf("reading the rewards of workload %q from %s: %w", workload, s.name, err)
	}
	if err := checkAsk(workload, "the number of episodes", n); err != nil {
		return nil, wrap(err)
	}
	var rewards []float64
	for t, err := range s.totals(ctx, workload) {
		if err != nil {
			return nil, wrap(err)
		}
		if rewards = append(rewards, t.reward); len(rewards) == n {
			break
		}
	}
	slices.Reverse(rewards)
	return rewards, nil
}

// Transitions implements [Store]. It queries a page when the caller has
// consumed the previous page.
func (s *Influx) Transitions(ctx context.Context, workload string, limit int) iter.Seq2[mdp.Transition, error] {
	return func(yield func(mdp.Transition, error) bool) {
		wrap := func(err error) error {
			return fmt.Errorf("reading transitions of workload %q from %s: %w", workload, s.name, err)
		}
		if err := checkAsk(workload, "the limit", limit); err != nil {
			yield(mdp.Transition{}, wrap(err))
			return
		}
		taken := 0
		for t, err := range s.transitions(ctx, workload, always, true, min(limit, pageOfPoints)) {
			if err != nil {
				err = wrap(err)
			}
			taken++
			if !yield(t, err) || taken == limit {
				return
			}
		}
	}
}

// Workloads implements [Store].
func (s *Influx) Workloads(ctx context.Context) ([]string, error) {
	// SHOW TAG VALUES also returns tags whose points are deleted, and in 3.x
	// only tags of the last day.
	all, err := s.query(ctx, fmt.Sprintf("SELECT LAST(reward) FROM %s WHERE %v GROUP BY workload", measurement, always))
	if err != nil {
		return nil, fmt.Errorf("reading workloads from %s: %w", s.name, err)
	}
	names := make([]string, 0, len(all))
	for _, one := range all {
		names = append(names, one.tags["workload"])
	}
	slices.Sort(names)
	return names, nil
}

// tagEscapes are those of a tag's value. What has no escape, row.check refuses.
var tagEscapes = strings.NewReplacer(",", `\,`, "=", `\=`, " ", `\ `)

// appendLine appends a row in line protocol, which is
//
//	measurement,tag=value field=value,field=value timestamp
//
// with an i after a value that is an integer
// (https://docs.influxdata.com/influxdb/v1/write_protocols/line_protocol_reference/).
func appendLine(b []byte, r *row) []byte {
	t := &r.transition
	b = append(b, measurement+",workload="...)
	b = append(b, tagEscapes.Replace(r.workload)...)
	b = append(b, " reward="...)
	b = strconv.AppendFloat(b, float64(t.Reward), 'g', -1, 64)
	b = appendInteger(b, "terminated", oneIf(t.Terminated))
	b = appendInteger(b, "truncated", oneIf(t.Truncated))
	b = appendInteger(b, "reward_known", oneIf(t.RewardKnown))
	b = appendInteger(b, "effect", int64(t.Effect))
	b = appendAt(b, "state_", t.State.At)
	b = appendInteger(b, "state_observed", int64(t.State.Observed))
	b = appendValues(b, "state_", &t.State)
	action := asState(t.Action)
	b = appendInteger(b, "action_sets", int64(action.Observed))
	b = appendInteger(b, "action_clipped", int64(t.Action.Clipped))
	b = appendValues(b, "action_", &action)
	b = appendAt(b, "next_", t.Next.At)
	b = appendInteger(b, "next_observed", int64(t.Next.Observed))
	b = appendValues(b, "next_", &t.Next)
	b = append(b, ' ')
	b = strconv.AppendInt(b, timestamp(r.episode, r.step), 10)
	return append(b, '\n')
}

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func appendInteger(b []byte, name string, v int64) []byte {
	b = append(append(append(b, ','), name...), '=')
	return append(strconv.AppendInt(b, v, 10), 'i')
}

func appendAt(b []byte, prefix string, t time.Time) []byte {
	return appendInteger(appendInteger(b, prefix+"at", t.Unix()), prefix+"at_nanos", int64(t.Nanosecond()))
}

func appendValues(b []byte, prefix string, s *mdp.State) []byte {
	for one := range s.Observed.Signals() {
		name := prefix + fieldName(one)
		if one.Integer() {
			b = appendInteger(b, name, one.Int(s))
		} else {
			b = append(append(append(b, ','), name...), '=')
			b = strconv.AppendFloat(b, one.Float(s), 'g', -1, 64)
		}
	}
	return b
}

// fieldName is the name of a signal in a form that needs no quotes in InfluxQL.
func fieldName(s mdp.Signal) string { return strings.ReplaceAll(s.String(), "-", "_") }
