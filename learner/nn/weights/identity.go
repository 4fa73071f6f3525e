package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// canonical is the JSON of a value with the keys in order.
func canonical(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	read, err := decoded(string(text))
	if err != nil {
		return "", err
	}
	text, err = json.Marshal(read) // maps come out in the order of their keys
	return string(text), err
}

func decoded(text string) (any, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// checkIdentity is nil when a file's identity is the learner's, and otherwise
// names the first field that differs, with both values.
func checkIdentity(saved string, own any) error {
	want, err := canonical(own)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if saved == want {
		return nil
	}
	there, err := decoded(saved)
	if err != nil {
		return fmt.Errorf("metadata \"identity\": %w", err)
	}
	here, err := decoded(want)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return difference("identity", there, here)
}

// difference names the first place where two JSON values differ; nil when there
// is none.
func difference(path string, there, here any) error {
	a, ok1 := there.(map[string]any)
	b, ok2 := here.(map[string]any)
	if ok1 && ok2 {
		all := maps.Clone(a)
		maps.Copy(all, b)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if err := difference(path+"."+name, a[name], b[name]); err != nil {
				return err
			}
		}
		return nil
	}
	x, err1 := json.Marshal(there)
	y, err2 := json.Marshal(here)
	if err1 == nil && err2 == nil && bytes.Equal(x, y) {
		return nil
	}
	return fmt.Errorf("%s is %s: it must be %s", path, x, y)
}
