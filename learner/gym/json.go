package gym

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// strict is a JSON codec; its value is the name in the content type. Unlike
// connect's own codec it rejects unknown fields. A client with a misspelt field
// such as "acton" then gets an error, and not a step without an action.
type strict string

// JSON is the codec of the messages as JSON.
var JSON connect.Codec = strict("json")

// Name implements connect.Codec.
func (s strict) Name() string { return string(s) }

// Marshal implements connect.Codec.
func (s strict) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", v)
	}
	return protojson.Marshal(m)
}

// Unmarshal implements connect.Codec.
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
