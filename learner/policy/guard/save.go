package guard

import (
	"encoding/json"
	"fmt"
	"time"
)

// saved is what a chain remembers, as JSON.
type saved struct {
	LastMemory time.Time `json:"lastMemory"`
	LastCPU    time.Time `json:"lastCPU"`
	LastScale  time.Time `json:"lastScale"`
	Memory     past      `json:"memory,omitempty"`
	Bursts     past      `json:"bursts,omitempty"`
}

// MarshalBinary saves what the chain remembers.
func (c *chain) MarshalBinary() ([]byte, error) {
	return json.Marshal(saved{
		LastMemory: c.lastMemory, LastCPU: c.lastCPU, LastScale: c.lastScale, Memory: c.memory, Bursts: c.bursts,
	})
}

// UnmarshalBinary restores what a chain remembers. On an error nothing has
// changed.
func (c *chain) UnmarshalBinary(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("restore the guards from %d bytes: %w", len(data), err)
	}
	c.lastMemory, c.lastCPU, c.lastScale = s.LastMemory, s.LastCPU, s.LastScale
	c.memory, c.bursts = s.Memory, s.Bursts
	return nil
}
