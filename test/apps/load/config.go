package load

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"awarescale.dev/aware/test/apps/trace"
)

// Bounds of one run. The schedule of 10 million requests takes 80 MB.
const (
	MaxDuration = 6 * time.Hour
	MaxRequests = 10_000_000
)

// Config says what to send to which targets. Targets and Trace are needed; the rest has
// defaults.
type Config struct {
	// Targets are the URLs to GET, in turn. Their addresses must be loopback or
	// private ones.
	Targets []string

	// Do sends one request to a target, and returns when the whole answer is there;
	// nil is an HTTP GET. It must end with its context. Targets are then whatever it
	// understands.
	Do func(ctx context.Context, target string) error

	// Trace gives the rate over time, already scaled as wanted. It may last 6 h
	// and ask for 10 million requests.
	Trace trace.Trace

	// Arrivals is how requests fall within the rate. Default Poisson.
	Arrivals Arrivals

	// Seed of the Poisson arrivals: the same seed and trace, the same schedule.
	Seed uint64

	// Timeout of a request, from its intended start. Default 5 s. It must exceed
	// the SLO, because failed requests count with it as their latency.
	Timeout time.Duration

	// MaxInFlight bounds the requests that are under way at once. A request over
	// it is dropped, and counted. Default 1000.
	MaxInFlight int

	// SLO is the latency that a request may take. Default 200 ms.
	SLO time.Duration

	// ConnMaxRequests is how many requests a connection serves before it is
	// closed, so that new replicas get their share. Default 20; negative for no
	// limit. See package client.
	ConnMaxRequests int
}

// Validate says what is wrong with the config, with the value, or nil. Fields
// left at zero are taken at their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	if len(c.Targets) == 0 {
		return errors.New("load: no targets")
	}
	for _, target := range c.Targets {
		if c.Do != nil {
			break
		}
		u, err := url.Parse(target)
		if err != nil {
			return fmt.Errorf("load: target: %w", err)
		}
		if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("load: target %q: want http://host or https://host", target)
		}
	}
	switch {
	case len(c.Trace.Rates) == 0 || c.Trace.Step <= 0:
		return fmt.Errorf("load: trace of %d steps of %v: no time to send in", len(c.Trace.Rates), c.Trace.Step)
	case c.Trace.Duration() > MaxDuration:
		return fmt.Errorf("load: trace lasts %v: at most %v", c.Trace.Duration(), MaxDuration)
	case c.Trace.Requests() > MaxRequests:
		return fmt.Errorf("load: trace asks for %.0f requests: at most %d", c.Trace.Requests(), MaxRequests)
	case c.Arrivals != Poisson && c.Arrivals != Uniform:
		return fmt.Errorf("load: arrivals %q: want %s or %s", c.Arrivals, Poisson, Uniform)
	case c.SLO < time.Microsecond:
		return fmt.Errorf("load: SLO %v: must be at least 1µs", c.SLO)
	case c.Timeout <= c.SLO:
		return fmt.Errorf("load: timeout %v: must be longer than the SLO, %v", c.Timeout, c.SLO)
	case c.Timeout > time.Hour:
		return fmt.Errorf("load: timeout %v: at most 1h", c.Timeout)
	case c.MaxInFlight < 1:
		return fmt.Errorf("load: at most %d requests in flight: must be at least 1", c.MaxInFlight)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Arrivals == "" {
		c.Arrivals = Poisson
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 1000
	}
	if c.SLO == 0 {
		c.SLO = 200 * time.Millisecond
	}
	return c
}
