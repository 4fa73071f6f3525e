package tower

import (
	"encoding/json"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// version is the version of the format below. It changes when an older tower
// cannot read the new format.
const version = 2

// maxMinutes is about two thousand years.
const maxMinutes = 1_000_000_000

// stored is a tower as JSON. It does not contain the network, which is trained
// again each minute. It contains the width of the bins, because the bin numbers
// depend on it, but not the rest of the config.
type stored struct {
	Version  int          `json:"version"`
	Services []string     `json:"services"`
	BinRPS   mdp.Rate     `json:"binRPS"`
	Minutes  int          `json:"minutes"`
	Action   action       `json:"action"`
	Fresh    bool         `json:"fresh"`
	Bin      int          `json:"bin"`  // -1 is none
	Used     []float64    `json:"used"` // millicores, summed over Usages minutes
	Usages   int          `json:"usages"`
	Cells    []storedCell `json:"cells"`
	Random   []byte       `json:"random"` // math/rand/v2's PCG
}

// storedCell is a cell as JSON.
type storedCell struct {
	Bin     int            `json:"bin"`
	Action  action         `json:"action"`
	Samples []storedSample `json:"samples"`
}

// storedSample is a sample as JSON.
type storedSample struct {
	Allocated mdp.MilliCPU  `json:"allocated"` // millicores
	Latency   time.Duration `json:"latency"`   // nanoseconds
}

// Encode returns the whole state of the tower as JSON, including the random
// state. A decoded tower continues exactly like this one.
func (t *Tower) Encode() ([]byte, error) {
	random, err := t.source.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("tower state: random state: %w", err)
	}
	s := stored{
		Version:  version,
		Services: t.services,
		BinRPS:   t.config.BinRPS,
		Minutes:  t.minutes,
		Action:   t.action,
		Fresh:    t.fresh,
		Bin:      t.bin,
		Used:     t.used,
		Usages:   t.usages,
		Random:   random,
	}
	for _, c := range t.cells {
		sc := storedCell{Bin: c.bin, Action: c.action}
		for _, m := range c.samples {
			sc.Samples = append(sc.Samples, storedSample{m.allocated, m.latency})
		}
		s.Cells = append(s.Cells, sc)
	}
	return json.Marshal(s)
}

// Decode creates a tower from its encoded state. The services and the width of
// the bins must be the same; the rest of the config can differ. An error names
// the wrong value.
func Decode(c Config, services []string, data []byte) (*Tower, error) {
	var v struct{ Version *int }
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("tower state of %d bytes: %w", len(data), err)
	}
	if v.Version == nil {
		return nil, fmt.Errorf("tower state of %d bytes: no version", len(data))
	}
	if *v.Version != version {
		return nil, fmt.Errorf("tower state of version %d: want %d", *v.Version, version)
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("tower state of %d bytes: %w", len(data), err)
	}
	if err := s.check(c, services); err != nil {
		return nil, err
	}
	t := New(c, services, 0)
	if err := t.source.UnmarshalBinary(s.Random); err != nil {
		return nil, fmt.Errorf("tower state: random state: %w", err)
	}
	t.minutes = s.Minutes
	t.action = s.Action
	t.fresh = s.Fresh
	t.bin = s.Bin
	t.used = s.Used
	t.usages = s.Usages
	t.group = groups(s.Used)
	for i, sc := range s.Cells {
		restored, err := sc.restore()
		if err != nil {
			return nil, fmt.Errorf("tower state: cell %d: %w", i, err)
		}
		restored.median = t.median(restored.samples)
		t.cells = append(t.cells, restored)
	}
	for i := 1; i < len(t.cells); i++ {
		if compareCells(t.cells[i-1], t.cells[i]) > 0 {
			return nil, fmt.Errorf("tower state: %d cells: out of order", len(t.cells))
		}
	}
	return t, nil
}

// Clone is a tower with the same state, which goes its own way.
func (t *Tower) Clone() (*Tower, error) {
	data, err := t.Encode()
	if err != nil {
		return nil, err
	}
	return Decode(t.config, t.services, data)
}

// check returns an error when the state does not fit the config and the
// services, or is impossible.
func (s *stored) check(c Config, services []string) error {
	if len(s.Services) != len(services) || len(s.Used) != len(services) {
		return fmt.Errorf("tower state of %d services, usage of %d: want %d",
			len(s.Services), len(s.Used), len(services))
	}
	for i, name := range services {
		if s.Services[i] != name {
			return fmt.Errorf("tower state: service %d is %q: want %q", i, s.Services[i], name)
		}
	}
	switch {
	case s.BinRPS != c.BinRPS:
		return fmt.Errorf("tower state with bins of %v requests per second: want %v",
			float64(s.BinRPS), float64(c.BinRPS))
	case s.Minutes < 0 || s.Minutes > maxMinutes || s.Usages < 0 || s.Usages > s.Minutes:
		return fmt.Errorf("tower state of %d minutes, usage of %d: not numbers of minutes", s.Minutes, s.Usages)
	case s.Bin < none || s.Bin > maxBin:
		return fmt.Errorf("tower state: bin %d: it must be in [%d, %d]", s.Bin, none, maxBin)
	case !s.Action.legal():
		return fmt.Errorf("tower state: action %v: not on the ladder", s.Action)
	}
	for i, used := range s.Used {
		if !(used >= 0 && used <= float64(s.Usages)*float64(maxCPU)) {
			return fmt.Errorf("tower state: %s used %v in %d minutes: not a figure of a service",
				services[i], used, s.Usages)
		}
	}
	return nil
}

// restore checks a stored cell and returns the cell, without its median.
func (sc storedCell) restore() (cell, error) {
	c := cell{bin: sc.Bin, action: sc.Action}
	switch {
	case sc.Bin < 0 || sc.Bin > maxBin:
		return c, fmt.Errorf("bin %d: it must be in [0, %d]", sc.Bin, maxBin)
	case !sc.Action.legal():
		return c, fmt.Errorf("action %v: not on the ladder", sc.Action)
	case len(sc.Samples) == 0 || len(sc.Samples) > maxSamples:
		return c, fmt.Errorf("%d samples: it must be in [1, %d]", len(sc.Samples), maxSamples)
	}
	for _, m := range sc.Samples {
		if m.Allocated < 0 || m.Allocated > maxCPU || m.Latency < 0 {
			return c, fmt.Errorf("%v allocated, latency %v: not figures of an application", m.Allocated, m.Latency)
		}
		c.samples = append(c.samples, sample{m.Allocated, m.Latency})
	}
	return c, nil
}

// legal reports whether both notches are on the ladder.
func (a action) legal() bool {
	for _, notch := range a {
		if notch < 0 || notch >= len(ladder) {
			return false
		}
	}
	return true
}
