package lesson_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train/lesson"
)

// prepared is a short lesson, with the weights of one before.
func prepared(t testing.TB) lesson.Lesson {
	t.Helper()
	store, _ := record(t, 6)
	c := config()
	c.Updates, c.Judge.Updates = 100, 20
	first, err := c.Learn(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Prepare(t.Context(), store, "shop/Deployment/web", time.Time{}, place, &first.Weights)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func encoded(t testing.TB, l lesson.Lesson) []byte {
	t.Helper()
	raw, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A lesson that was sent brings what it would have brought here, to the last bit; and so does its result.
func TestALessonThatIsSentIsTheSameLesson(t *testing.T) {
	l := prepared(t)
	here, err := l.Learn(t.Context(), agent.NewWorkspace())
	if err != nil {
		t.Fatal(err)
	}
	sent, err := lesson.Decode(encoded(t, l))
	if err != nil {
		t.Fatal(err)
	}
	there, err := sent.Learn(t.Context(), agent.NewWorkspace())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := there.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := l.Config.DecodeResult(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(back.Policy.Snapshot.Theta, here.Policy.Snapshot.Theta) || back.Worth != here.Worth || here.Anew != "" ||
		back.Transitions != here.Transitions || back.Episodes != here.Episodes || back.Anew != here.Anew {
		t.Errorf("sent %+v of %d transitions, here %+v of %d", back.Worth, back.Transitions, here.Worth, here.Transitions)
	}
	mine, err := weights.Encode(here.Weights)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := weights.Encode(back.Weights)
	if err != nil || !slices.Equal(mine, theirs) {
		t.Errorf("the weights are not the same (%v)", err)
	}
}

// Weights of another shape, as of another version of the program, are no reason to learn nothing for ever.
func TestWeightsThatDoNotFitAreNotGoneOnFrom(t *testing.T) {
	l := prepared(t)
	l.Config.Hidden = []int{8}
	got, err := l.Learn(t.Context(), nil)
	if err != nil || got.Anew == "" {
		t.Errorf("%v, anew because of %q", err, got.Anew)
	}
	l.From = nil
	if got, err := l.Learn(t.Context(), nil); err != nil || got.Anew != "" {
		t.Errorf("%v: nothing was given, and %q is said", err, got.Anew)
	}
}

// What is not a whole lesson is refused, and the error says what of it.
func TestWhatIsNoLessonIsRefused(t *testing.T) {
	whole, err := weights.Decode(encoded(t, prepared(t)))
	if err != nil {
		t.Fatal(err)
	}
	lengths := func(f *weights.File, of float64) {
		f.Tensors["lengths"] = weights.Tensor{Shape: []int{1}, Data: []float64{of}}
	}
	for want, spoil := range map[string]func(f *weights.File){
		`kind "aware-policy"`:  func(f *weights.File) { f.Meta["kind"] = "aware-policy" },
		`metadata "lesson"`:    func(f *weights.File) { f.Meta["lesson"] = "{" },
		`unknown field "more"`: func(f *weights.File) { f.Meta["lesson"] = `{"more":1,` + f.Meta["lesson"][1:] },
		"gamma 7": func(f *weights.File) {
			f.Meta["lesson"] = strings.Replace(f.Meta["lesson"], `"Gamma":0.9`, `"Gamma":7`, 1)
		},
		"margin -1": func(f *weights.File) {
			f.Meta["lesson"] = strings.Replace(f.Meta["lesson"], `"Margin":0`, `"Margin":-1`, 1)
		},
		`tensor "next" is missing`: func(f *weights.File) { delete(f.Tensors, "next") },
		`tensor "state" has shape`: func(f *weights.File) { f.Tensors["state"] = f.Tensors["reward"] },
		"no transitions":           func(f *weights.File) { delete(f.Tensors, "reward") },
		"legal choices":            func(f *weights.File) { f.Blobs["legal"] = f.Blobs["legal"][1:] },
		"0 ends":                   func(f *weights.File) { delete(f.Blobs, "ends") },
		"an episode of 0.5":        func(f *weights.File) { lengths(f, 0.5) },
		"an episode of 601":        func(f *weights.File) { lengths(f, 601) },
		"episodes of 5":            func(f *weights.File) { lengths(f, 5) },
		"the weights to go on":     func(f *weights.File) { f.Blobs["from"] = []byte("x") },
	} {
		f := weights.File{Meta: map[string]string{}, Tensors: map[string]weights.Tensor{}, Blobs: map[string][]byte{}}
		for k, v := range whole.Meta {
			f.Meta[k] = v
		}
		for k, v := range whole.Tensors {
			f.Tensors[k] = v
		}
		for k, v := range whole.Blobs {
			f.Blobs[k] = v
		}
		spoil(&f)
		raw, err := weights.Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lesson.Decode(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	l := prepared(t)
	l.Episodes[0][3].NextLegal = nil
	if _, err := l.Encode(); err == nil || !strings.Contains(err.Error(), "choices") {
		t.Errorf("a transition without its choices: %v", err)
	}
}

// Whatever comes, it is read or refused, and a lesson that was read can be sent on.
func FuzzDecode(f *testing.F) {
	raw := encoded(f, prepared(f))
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	c := config()
	f.Fuzz(func(t *testing.T, raw []byte) {
		if l, err := lesson.Decode(raw); err == nil {
			if _, err := l.Encode(); err != nil {
				t.Errorf("it was read, and cannot be sent: %v", err)
			}
		}
		_, _ = c.DecodeResult(raw)
	})
}
