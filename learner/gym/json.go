package gym

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// strict is JSON by the name under which a client asks for it. Unlike connect's own it refuses a field that it does not
// know: who writes "acton" shall not believe that the workload was acted upon.
type strict string

func (s strict) Name() string { return string(s) }

func (s strict) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", v)
	}
	return protojson.Marshal(m)
}

func (s strict) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", v)
	}
	if len(b) == 0 {
		return fmt.Errorf("an empty body: it must be a JSON object, {} at least")
	}
	return protojson.Unmarshal(b, m)
}
