package load

import "time"

// outcome is how a request ended.
type outcome int

const (
	ok outcome = iota
	failed
	timedOut
	dropped
	abandoned
)

// ended is one request that is over.
type ended struct {
	intended time.Duration // since the start of the run
	lag      time.Duration // from the intended start to when the generator got to it
	latency  time.Duration // from the intended start to the end of the answer
	outcome  outcome
	err      error // of a failed one
}

// window is the length of the windows over which the SLO is evaluated.
const window = 10 * time.Second

// tally counts the results of one run. Times are arguments, so that tests choose them.
type tally struct {
	config   Config
	length   time.Duration
	intended []int // requests by second

	open     []*counts // by second; nil before its first request and after it is finished
	finished int       // seconds

	total      *digest // of the finished seconds
	result     Result  // counts only, until it is complete
	lag        *digest
	windows    int     // that had a request
	violated   int     // windows
	inWindow   *digest // of the current window
	firstError error
}

// counts is the results of one second.
type counts struct {
	outcomes [abandoned + 1]int // by outcome
	counted  int
	digest   *digest
}

func newTally(c Config, arrivals []time.Duration) *tally {
	length := c.Trace.Duration()
	seconds := int((length + time.Second - 1) / time.Second)
	t := &tally{
		config:   c,
		length:   length,
		intended: make([]int, seconds),
		open:     make([]*counts, seconds),
		total:    newDigest(c.Timeout, c.SLO),
		lag:      newDigest(time.Hour, time.Hour),
		inWindow: newDigest(c.Timeout, c.SLO),
	}
	for _, at := range arrivals {
		t.intended[at/time.Second]++
	}
	return t
}

// add counts a request.
func (t *tally) add(e ended) {
	second := e.intended / time.Second
	a := t.open[second]
	if a == nil {
		a = &counts{digest: newDigest(t.config.Timeout, t.config.SLO)}
		t.open[second] = a
	}
	a.counted++
	a.outcomes[e.outcome]++
	if e.outcome == abandoned {
		return
	}
	t.lag.add(e.lag)
	if e.outcome != ok {
		e.latency = t.config.Timeout
	}
	a.digest.add(e.latency)
	if t.firstError == nil {
		t.firstError = e.err
	}
}

// allEnded says whether every intended request was counted with an answer, or
// the lack of one.
func (t *tally) allEnded() bool {
	for i := t.finished; i < len(t.intended); i++ {
		if a := t.open[i]; t.intended[i] > 0 && (a == nil || a.counted-a.outcomes[abandoned] < t.intended[i]) {
			return false
		}
	}
	return true
}

// finish returns the next seconds, in order, that are over at now since the
// start and whose requests have all ended.
func (t *tally) finish(now time.Duration) []Second {
	var seconds []Second
	for i := t.finished; i < len(t.intended); i++ {
		end := min(time.Duration(i+1)*time.Second, t.length)
		counted := 0
		if t.open[i] != nil {
			counted = t.open[i].counted
		}
		if now < end || counted < t.intended[i] {
			break
		}
		seconds = append(seconds, t.close(i))
	}
	return seconds
}

// close takes second i, which must be the next one, into the totals.
func (t *tally) close(i int) Second {
	a := t.open[i]
	if a == nil {
		a = &counts{digest: newDigest(t.config.Timeout, t.config.SLO)}
	}
	t.open[i] = nil
	t.finished = i + 1

	n := a.outcomes
	t.result.OK += n[ok]
	t.result.Errors += n[failed]
	t.result.Timeouts += n[timedOut]
	t.result.Dropped += n[dropped]
	t.total.merge(a.digest)
	t.inWindow.merge(a.digest)
	if t.finished%int(window/time.Second) == 0 {
		t.closeWindow()
	}

	return Second{
		Second:      i,
		IntendedRPS: t.intended[i],
		Sent:        n[ok] + n[failed] + n[timedOut],
		OK:          n[ok],
		Errors:      n[failed],
		Timeouts:    n[timedOut],
		Dropped:     n[dropped],
		P50MS:       milliseconds(a.digest.quantile(0.50)),
		P90MS:       milliseconds(a.digest.quantile(0.90)),
		P99MS:       milliseconds(a.digest.quantile(0.99)),
		MaxMS:       milliseconds(a.digest.highest),
		P99SoFarMS:  milliseconds(t.total.quantile(0.99)),
	}
}

func (t *tally) closeWindow() {
	if t.inWindow.count == 0 {
		return
	}
	t.windows++
	if t.inWindow.quantile(0.99) > t.config.SLO {
		t.violated++
	}
	t.inWindow = newDigest(t.config.Timeout, t.config.SLO)
}

// end closes what is still open and returns the result of a run that took so
// long. Nothing can be added afterwards.
func (t *tally) end(took time.Duration) Result {
	for i := t.finished; i < len(t.intended); i++ {
		t.close(i)
	}
	t.closeWindow()

	r := t.result
	r.Requests = r.OK + r.Errors + r.Timeouts + r.Dropped
	for _, n := range t.intended {
		r.Abandoned += n
	}
	r.Abandoned -= r.Requests
	r.DurationS = took.Seconds()
	r.P50MS = milliseconds(t.total.quantile(0.50))
	r.P90MS = milliseconds(t.total.quantile(0.90))
	r.P95MS = milliseconds(t.total.quantile(0.95))
	r.P99MS = milliseconds(t.total.quantile(0.99))
	r.P999MS = milliseconds(t.total.quantile(0.999))
	r.MaxMS = milliseconds(t.total.highest)
	r.MeanMS = milliseconds(t.total.mean())
	if took > 0 {
		r.AchievedRPS = float64(r.OK) / took.Seconds()
	}
	r.SLOMS = milliseconds(t.config.SLO)
	r.SLOViolationRatio = t.total.shareOver()
	if t.windows > 0 {
		r.SLOWindowsViolatedRatio = float64(t.violated) / float64(t.windows)
	}
	r.SenderLagP99MS = milliseconds(t.lag.quantile(0.99))
	r.SenderLagMaxMS = milliseconds(t.lag.highest)
	if t.firstError != nil {
		r.FirstError = t.firstError.Error()
	}
	return r
}
