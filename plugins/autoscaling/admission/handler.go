package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Path is where the webhook is served.
const Path = "/admit/pods"

const (
	// maxReview is the size of the largest review that is read. An API server takes objects
	// of 3 MiB at most, and a review has one of them.
	maxReview = 4 << 20
	// atOnce is how many reviews are worked on at once.
	atOnce = 32
	// logEvery is how often a line is logged in the long run, and logBurst how many at once:
	// whoever reaches the port cannot fill the log. All requests are counted.
	logEvery = time.Second
	logBurst = 20
)

// Handler answers the API server's reviews of new pods.
type Handler struct {
	// Source says what is known of a pod's workload; nil while that is not known.
	Source func() *Source
	Now    func() time.Time
	// Counted is called once for each request.
	Counted func(Result)
	// Log logs: an error, or a pod that was sized.
	Log func(err error, message string, kv ...any)

	lines *rate.Limiter
	slots chan struct{}
}

// NewHandler makes a Handler. All are needed.
func NewHandler(source func() *Source, now func() time.Time, counted func(Result),
	log func(err error, message string, kv ...any)) *Handler {
	return &Handler{
		Source: source, Now: now, Counted: counted, Log: log,
		lines: rate.NewLimiter(rate.Every(logEvery), logBurst),
		slots: make(chan struct{}, atOnce),
	}
}

// refusal is the answer to what is no review of an API server.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

// ServeHTTP implements [http.Handler]. What is no review gets a status of 4xx; everything
// else is allowed.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		h.refuse(w, &refusal{http.StatusTooManyRequests, errors.New("too many reviews are under way")})
		return
	}
	request, refused := read(w, r)
	if refused != nil {
		h.refuse(w, refused)
		return
	}
	answer := h.answer(r.Context(), request)
	w.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(w).Encode(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: reviewVersion, Kind: "AdmissionReview"},
		Response: answer,
	})
	if err != nil {
		h.log(err, "Answering a review", "peer", r.RemoteAddr)
	}
}

// refuse answers what is no review.
func (h *Handler) refuse(w http.ResponseWriter, r *refusal) {
	h.Counted(BadRequest)
	http.Error(w, r.Error(), r.status)
}

// read reads a review from a request.
func read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, *refusal) {
	if r.Method != http.MethodPost {
		return nil, &refusal{http.StatusMethodNotAllowed, fmt.Errorf("method %s: it must be POST", r.Method)}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &refusal{http.StatusUnsupportedMediaType,
			fmt.Errorf("content type %.60q: it must be application/json", r.Header.Get("Content-Type"))}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("a review has %d bytes at most", large.Limit)}
	case err != nil:
		return nil, &refusal{http.StatusBadRequest, fmt.Errorf("reading a review: %w", err)}
	}
	request, err := ParseReview(body)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, err}
	}
	return request, nil
}

// answer allows a pod, with a patch or without one. Nothing that goes wrong here is the
// pod's fault.
func (h *Handler) answer(ctx context.Context, r *admissionv1.AdmissionRequest) (answer *admissionv1.AdmissionResponse) {
	answer = &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
	unchanged := func(err error) {
		answer.Patch, answer.PatchType = nil, nil
		h.Counted(Failed)
		h.log(err, "A new pod keeps its template's size", "namespace", r.Namespace)
	}
	defer func() {
		if p := recover(); p != nil {
			unchanged(fmt.Errorf("judging a pod: panic: %v", p))
		}
	}()
	pod, v, err := h.judge(ctx, r)
	if err != nil {
		unchanged(err)
		return answer
	}
	patch, err := v.Patch(pod, h.Now())
	if err != nil {
		unchanged(err)
		return answer
	}
	if patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		answer.Patch, answer.PatchType = patch, &kind
		h.log(nil, "A new pod is sized", "pod", name(pod), "sizes", v.Reason)
	}
	h.Counted(v.Result)
	return answer
}

// judge reads a request's pod and decides on it.
func (h *Handler) judge(ctx context.Context, r *admissionv1.AdmissionRequest) (*corev1.Pod, Verdict, error) {
	pods := r.Resource.Group == "" && r.Resource.Resource == "pods"
	if r.Operation != admissionv1.Create || r.SubResource != "" || !pods {
		return nil, keep(NotManaged, "%s of %s is not the creation of a pod", r.Operation, r.Resource.Resource), nil
	}
	pod, err := ParsePod(r.Object.Raw)
	if err != nil {
		return nil, Verdict{}, err
	}
	pod.Namespace = r.Namespace
	source := h.Source()
	if source == nil {
		return pod, keep(Unready, "the workloads are not known yet"), nil
	}
	facts, err := source.Facts(ctx, pod)
	if err != nil {
		return nil, Verdict{}, err
	}
	return pod, Judge(pod, facts), nil
}

// name names a pod for people: those of a ReplicaSet get their name later.
func name(pod *corev1.Pod) types.NamespacedName {
	if pod.Name == "" {
		return types.NamespacedName{Namespace: pod.Namespace, Name: pod.GenerateName + "*"}
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// log logs, as far as there is room for one more line.
func (h *Handler) log(err error, message string, kv ...any) {
	if h.lines.AllowN(h.Now(), 1) {
		h.Log(err, message, kv...)
	}
}

// Sources holds the Source of a handler while there is one.
type Sources struct{ now atomic.Pointer[Source] }

// Set sets the Source, nil for none.
func (s *Sources) Set(source *Source) { s.now.Store(source) }

// Get is the Source; nil for none.
func (s *Sources) Get() *Source { return s.now.Load() }
