package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/test/apps/segment"
	"github.com/spf13/pflag"
)

// settings are the flags.
type settings struct {
	listen        string
	metricsListen string
	segments      work          // of a request that names none
	calls         addresses     // asked at the same time, after the own work
	then          addresses     // asked one after the other, after calls
	callTimeout   time.Duration // of one call
	concurrency   int           // requests worked on at once; 0 for no limit
	memory        size          // to hold all the time
	drain         time.Duration // to keep serving after SIGTERM
}

func defaults() *settings {
	c, err := segment.Parse("json:2,text:1,compress:1,table:1") // about 6 ms of CPU
	if err != nil {
		panic(err)
	}
	return &settings{
		listen:        ":8080",
		metricsListen: ":9090",
		segments:      work(c),
		callTimeout:   10 * time.Second,
		memory:        32 << 20,
		drain:         3 * time.Second,
	}
}

func (s *settings) register(f *pflag.FlagSet) {
	f.StringVar(&s.listen, "listen", s.listen, "address to serve on")
	f.StringVar(&s.metricsListen, "metrics-listen", s.metricsListen, "address to serve /metrics on")
	f.Var(&s.segments, "segments", "work of a request, as name:times,...; each is about 1 ms of CPU")
	f.Var(&s.calls, "calls", "URLs to call at the same time, after the own work")
	f.Var(&s.then, "then", "URLs to call one after the other, after --calls")
	f.DurationVar(&s.callTimeout, "call-timeout", s.callTimeout, "of one call")
	f.IntVar(&s.concurrency, "concurrency", s.concurrency,
		"requests worked on at once, calls included; others queue (0: no limit)")
	f.Var(&s.memory, "memory", "memory to hold beside what requests need, such as 32Mi")
	f.DurationVar(&s.drain, "drain", s.drain, "how long to keep serving after SIGTERM")
}

// validate checks what a flag's own type does not.
func (s *settings) validate() error {
	switch {
	case s.concurrency < 0:
		return fmt.Errorf("--concurrency %d: must be 0 or more", s.concurrency)
	case s.drain < 0:
		return fmt.Errorf("--drain %v: must be 0s or more", s.drain)
	case s.callTimeout <= 0:
		return fmt.Errorf("--call-timeout %v: must be over 0s", s.callTimeout)
	}
	return nil
}

// work is a flag with a composition.
type work segment.Composition

func (w *work) String() string { return segment.Composition(*w).String() }
func (w *work) Type() string   { return "name:times,..." }

func (w *work) Set(text string) error {
	c, err := segment.Parse(text)
	*w = work(c)
	return err
}

// addresses is a flag with URLs, separated by commas; a comma within one is
// written %2C.
type addresses []string

func (a *addresses) String() string { return strings.Join(*a, ",") }
func (a *addresses) Type() string   { return "URL,..." }

func (a *addresses) Set(text string) error {
	*a = nil
	if text == "" {
		return nil
	}
	for address := range strings.SplitSeq(text, ",") {
		address = strings.TrimSpace(address)
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("%q: want http://host or https://host", address)
		}
		*a = append(*a, address)
	}
	return nil
}

// size is a flag with a number of bytes, as Kubernetes writes them.
type size int64

var units = []struct {
	suffix string
	bytes  int64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9},
}

// maxSize limits the effect of a typing error.
const maxSize = 64 << 30

// String uses the largest binary unit that gives an integer.
func (s *size) String() string {
	n := int64(*s)
	for _, u := range []string{"", "Ki", "Mi"} {
		if n == 0 || n%1024 != 0 {
			return strconv.FormatInt(n, 10) + u
		}
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + "Gi"
}

func (s *size) Type() string { return "bytes" }

func (s *size) Set(text string) error {
	number, unit := text, int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			number, unit = n, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return errors.New("want a whole number with Ki, Mi, Gi, k, M, G or nothing behind it")
	}
	if n < 0 || n > maxSize/unit {
		return errors.New("must be 0 to 64Gi")
	}
	*s = size(n * unit)
	return nil
}
