package segment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"
)

// vocabulary is what random text is made of. The first words come more often.
var vocabulary = strings.Fields(`the of a to and in that is for it as was with be by on not he his but at
	are this have from or one had were they which you all we can her has there been their more if no when
	would who so said what up its about into than them only some could time these two may then do first any
	container request latency limit replica memory throttle node cluster queue policy reward agent scale`)

// randomText has length bytes of lower- and upper-case words, with a full stop
// now and then.
func randomText(r *rand.Rand, length int) string {
	var b strings.Builder
	b.Grow(length + 16)
	for b.Len() < length {
		// The square of a uniform number prefers small indices.
		u := r.Float64()
		word := vocabulary[int(u*u*float64(len(vocabulary)))]
		if r.IntN(12) == 0 {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:] + ". ")
			continue
		}
		b.WriteString(word)
		b.WriteByte(' ')
	}
	return b.String()[:length]
}

func runText(ctx context.Context, r *rand.Rand, size int) error {
	return batches(ctx, size, 8, func(kib int) error {
		frequentWords(randomText(r, kib<<10), 10)
		return nil
	})
}

// wordCount says how often a word occurs in a text.
type wordCount struct {
	word  string
	count int
}

// frequentWords returns the n most frequent words in lower case, most frequent
// first, words of one count in alphabetical order.
func frequentWords(text string, n int) []wordCount {
	counts := make(map[string]int)
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return !unicode.IsLetter(c) }) {
		counts[strings.ToLower(word)]++
	}
	words := make([]wordCount, 0, len(counts))
	for word, count := range counts {
		words = append(words, wordCount{word, count})
	}
	slices.SortFunc(words, func(a, b wordCount) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.word, b.word))
	})
	return words[:min(n, len(words))]
}

// order is the record that the json and page segments handle.
type order struct {
	ID       uint64            `json:"id"`
	Customer string            `json:"customer"`
	Items    []string          `json:"items"`
	Cents    int64             `json:"cents"`
	Labels   map[string]string `json:"labels"`
}

func randomOrders(r *rand.Rand, n int) []order {
	word := func() string { return vocabulary[r.IntN(len(vocabulary))] }
	orders := make([]order, n)
	for i := range orders {
		orders[i] = order{
			ID:       r.Uint64(),
			Customer: word() + " & " + word(), // the & has to be escaped in HTML
			Items:    []string{word(), word(), word()},
			Cents:    r.Int64N(1_000_000),
			Labels:   map[string]string{"region": word(), "shop": word()},
		}
	}
	return orders
}

func runJSON(ctx context.Context, r *rand.Rand, size int) error {
	return batches(ctx, size, 50, func(n int) error {
		_, err := throughJSON(randomOrders(r, n))
		return err
	})
}

// throughJSON encodes the orders and returns what decoding gives.
func throughJSON(orders []order) ([]order, error) {
	text, err := json.Marshal(orders)
	if err != nil {
		return nil, fmt.Errorf("encoding %d orders: %w", len(orders), err)
	}
	var back []order
	if err := json.Unmarshal(text, &back); err != nil {
		return nil, fmt.Errorf("decoding %d bytes of orders: %w", len(text), err)
	}
	return back, nil
}

func runPage(ctx context.Context, r *rand.Rand, size int) error {
	return batches(ctx, size, 50, func(n int) error {
		return renderPage(io.Discard, randomOrders(r, n))
	})
}

var orderPage = template.Must(template.New("orders").Parse(
	`<!DOCTYPE html><title>Orders</title><table>` +
		`{{range .}}<tr><td>{{.ID}}<td>{{.Customer}}<td>{{range .Items}}{{.}} {{end}}<td>{{.Cents}}{{end}}` +
		`</table>`))

func renderPage(w io.Writer, orders []order) error {
	if err := orderPage.Execute(w, orders); err != nil {
		return fmt.Errorf("rendering a page of %d orders: %w", len(orders), err)
	}
	return nil
}
