package bench

import (
	_ "embed" // the margins
	"encoding/json"
	"fmt"
	"sync"
)

// ServiceMargins are learned margins of the demand policy, by application.
type ServiceMargins struct {
	Encoding     int                           `json:"encoding"`
	Applications map[string]ApplicationMargins `json:"applications"`
	Common       *CommonMargin                 `json:"common,omitempty"` // nil: none
}

// CommonMargin is the margin of services of which nothing was learned.
type CommonMargin struct {
	Made   string  `json:"made"` // the command, and when
	Margin float64 `json:"margin"`
}

// Of is the margin of a service: its own, or the common one.
func (m ServiceMargins) Of(application, service string) float64 {
	if own, ok := m.Applications[application].Margins[service]; ok {
		return own
	}
	if m.Common != nil {
		return m.Common.Margin
	}
	return 0
}

// ApplicationMargins are the margins of an application.
type ApplicationMargins struct {
	Made    string             `json:"made"` // the command, and when
	Margins map[string]float64 `json:"margins"`
}

// ReadServiceMargins reads margins. Errors contain the name.
func ReadServiceMargins(name string, text []byte) (ServiceMargins, error) {
	var m ServiceMargins
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("margins %s: %w", name, err)
	}
	if m.Encoding != Encoding {
		return m, fmt.Errorf("margins %s: encoding %d: this aware reads encoding %d", name, m.Encoding, Encoding)
	}
	return m, nil
}

//go:embed margins.json
var shippedMargins []byte

// ShippedMargins are the margins that are part of aware: of each service of the three applications,
// learned on their warm-up traces ("make margins"), and a common one for all others.
var ShippedMargins = sync.OnceValue(func() ServiceMargins {
	m, err := ReadServiceMargins("margins.json (embedded)", shippedMargins)
	if err != nil {
		panic(err) // a test reads it
	}
	return m
})
