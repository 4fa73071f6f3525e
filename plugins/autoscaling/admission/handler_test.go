package admission_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/admission"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func sameNames(a, b []corev1.ResourceName) bool { return slices.Equal(a, b) }

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// set is the pod's ReplicaSet.
func (s *shop) set() *appsv1.ReplicaSet {
	yes := true
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "set", Labels: s.pod.Labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Controller: &yes}},
	}}
}

// cache is a cache with objects, whose reads may be watched or fail.
func cache(t testing.TB, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithReturnManagedFields().
		WithInterceptorFuncs(funcs).Build()
}

// served is a handler, and what it counted and logged.
type served struct {
	*admission.Handler
	mu      sync.Mutex
	results []admission.Result
	lines   []string
}

// serve makes a handler over a cache; nil for none yet.
func serve(reader client.Reader, now func() time.Time) *served {
	s := &served{}
	var source *admission.Source
	if reader != nil {
		source = &admission.Source{Reader: reader, Now: now, StatusEvery: time.Minute}
	}
	count := func(r admission.Result) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.results = append(s.results, r)
	}
	s.Handler = admission.NewHandler(func() *admission.Source { return source }, now, count,
		func(err error, message string, kv ...any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lines = append(s.lines, fmt.Sprint(err, " ", message, " ", kv))
		})
	return s
}

// counted checks what was counted, and forgets it.
func (s *served) counted(t *testing.T, want ...admission.Result) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.results, want) {
		t.Errorf("counted %v, want %v", s.results, want)
	}
	s.results = nil
}

func at() time.Time { return noon }

// review is the API server's question about a new pod.
func review(t testing.TB, pod *corev1.Pod, change func(*admissionv1.AdmissionRequest)) []byte {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	r := &admissionv1.AdmissionRequest{
		UID: "question", Namespace: "shop", Operation: admissionv1.Create,
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   runtime.RawExtension{Raw: raw},
	}
	if change != nil {
		change(r)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: r,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// ask asks a handler, and fails the test when the answer is no permission.
func ask(t *testing.T, h http.Handler, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	r := httptest.NewRequest("POST", admission.Path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return permission(t, w.Code, w.Body.Bytes())
}

func permission(t *testing.T, status int, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &answer); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	a := answer.Response
	if answer.APIVersion != "admission.k8s.io/v1" || answer.Kind != "AdmissionReview" ||
		a == nil || a.UID != "question" || !a.Allowed {
		t.Fatalf("answer %s, want a permission of the question", body)
	}
	if (a.Patch == nil) != (a.PatchType == nil) || a.PatchType != nil && *a.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("answer %s: a patch without its type, or the other way round", body)
	}
	return a
}

// apply is a pod after a verdict's patch, as the API server would apply it. Fields that this
// program does not know must stay.
func apply(t *testing.T, pod *corev1.Pod, v admission.Verdict) *corev1.Pod {
	t.Helper()
	patch, err := v.Patch(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	return patched(t, pod, patch)
}

func patched(t *testing.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte(`"spec":{`), []byte(`"spec":{"ofTomorrow":7,`), 1)
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	made, err := decoded.Apply(raw)
	if err != nil || !bytes.Contains(made, []byte(`"ofTomorrow":7`)) {
		t.Fatalf("%s applied to %s: %v, %s", patch, raw, err, made)
	}
	out := new(corev1.Pod)
	if err := json.Unmarshal(made, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// restored checks that a pod gets the template's size when central restores it.
func restored(t *testing.T, s *shop, pod *corev1.Pod) {
	t.Helper()
	c := cache(t, interceptor.Funcs{}, s.deployment, pod)
	w, err := updater.Load(t.Context(), c, "shop", "Deployment", "web")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := updater.Restore(t.Context(), c, w, updater.Manager, ""); err != nil {
		t.Fatal(err)
	}
	if got := after(&w.Pods[0], admission.Verdict{}, 0); got != "200m/400m 64Mi/128Mi" {
		t.Errorf("after it was restored the pod has %s", got)
	}
}

func TestTheAnswerIsAPatchOfTheNewPod(t *testing.T) {
	s := open()
	h := serve(cache(t, interceptor.Funcs{}, s.set(), s.deployment, s.object), at)
	a := ask(t, h, review(t, s.pod, nil))
	if got := after(patched(t, s.pod, a.Patch), admission.Verdict{}, 0); got != "150m/400m 50Mi/128Mi" {
		t.Errorf("the new pod has %s: %s", got, a.Patch)
	}
	h.counted(t, admission.Sized)
	if len(h.lines) != 1 || !strings.Contains(h.lines[0], "shop/web-1-*") || !strings.Contains(h.lines[0], "cpu 150m/400m") {
		t.Errorf("logged %q, want the pod and its size", h.lines)
	}
}

func TestThePodOfAStatefulSetIsSized(t *testing.T) {
	s := open()
	s.pod.OwnerReferences[0].Kind, s.pod.OwnerReferences[0].Name = "StatefulSet", "web"
	s.object.Spec.TargetRef.Kind = "StatefulSet"
	set := &appsv1.StatefulSet{ObjectMeta: s.deployment.ObjectMeta, Spec: appsv1.StatefulSetSpec{
		Selector: s.deployment.Spec.Selector, Template: s.deployment.Spec.Template,
	}}
	h := serve(cache(t, interceptor.Funcs{}, set, s.object), at)
	if a := ask(t, h, review(t, s.pod, nil)); a.Patch == nil {
		t.Error("no patch")
	}
	h.counted(t, admission.Sized)
}

// A pod that has its name already is logged by it.
func TestASizedPodIsNamedInTheLog(t *testing.T) {
	s := open()
	s.pod.Name = "web-1-x7k2p"
	h := serve(cache(t, interceptor.Funcs{}, s.set(), s.deployment, s.object), at)
	ask(t, h, review(t, s.pod, nil))
	if len(h.lines) != 1 || !strings.Contains(h.lines[0], "shop/web-1-x7k2p") {
		t.Errorf("logged %q, want the pod's name", h.lines)
	}
}

// A pod is allowed whatever is wrong with it, with its workload, or with us.
func TestWhateverGoesWrongThePodIsAllowedAndUnchanged(t *testing.T) {
	fails := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("the cache is broken")
	}}
	panics := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object,
		...client.GetOption) error {
		panic("a nil map")
	}}
	raw := func(text string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(text) }
	}
	for name, c := range map[string]struct {
		funcs  interceptor.Funcs
		change func(*admissionv1.AdmissionRequest)
		result admission.Result
		logs   string
	}{
		"the cache fails":        {fails, nil, admission.Failed, "the cache is broken"},
		"the cache panics":       {panics, nil, admission.Failed, "a nil map"},
		"the pod is no object":   {interceptor.Funcs{}, raw(`[1, 2]`), admission.Failed, "reading a pod"},
		"there is no pod":        {interceptor.Funcs{}, raw(`null`), admission.Failed, "reading a pod"},
		"the pod is empty":       {interceptor.Funcs{}, raw(`{}`), admission.NotManaged, ""},
		"an amount that is none": {interceptor.Funcs{}, raw(limited(`"much"`)), admission.Failed, "much"},
		"an amount that takes hours to read": {
			interceptor.Funcs{}, raw(limited(`"07E1000000000000"`)), admission.Failed, "two of them in an exponent"},
		"a negative exponent that takes hours": {
			interceptor.Funcs{}, raw(limited(`"7e-1000000000000"`)), admission.Failed, "two of them in an exponent"},
		"an amount of 1 MiB": {
			interceptor.Funcs{}, raw(limited(`"` + strings.Repeat("9", 1<<20) + `"`)), admission.Failed, "40 characters"},
		"an amount that is a number": {interceptor.Funcs{}, raw(limited(`7`)), admission.Failed, "must be a string"},
		"another object": {interceptor.Funcs{}, func(r *admissionv1.AdmissionRequest) {
			r.Resource.Resource = "secrets"
		}, admission.NotManaged, ""},
		"an update": {interceptor.Funcs{}, func(r *admissionv1.AdmissionRequest) {
			r.Operation = admissionv1.Update
		}, admission.NotManaged, ""},
		"an eviction": {interceptor.Funcs{}, func(r *admissionv1.AdmissionRequest) {
			r.SubResource = "eviction"
		}, admission.NotManaged, ""},
		"another namespace": {interceptor.Funcs{}, func(r *admissionv1.AdmissionRequest) {
			r.Namespace = "elsewhere"
		}, admission.NotManaged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			h := serve(cache(t, c.funcs, s.set(), s.deployment, s.object), at)
			if a := ask(t, h, review(t, s.pod, c.change)); a.Patch != nil {
				t.Errorf("patch %s", a.Patch)
			}
			h.counted(t, c.result)
			logged := strings.Join(h.lines, "\n")
			if !strings.Contains(logged, c.logs) || c.logs == "" && logged != "" {
				t.Errorf("logged %q, want %q", logged, c.logs)
			}
		})
	}
	t.Run("the caches are not filled yet", func(t *testing.T) {
		h := serve(nil, at)
		if a := ask(t, h, review(t, open().pod, nil)); a.Patch != nil {
			t.Errorf("patch %s", a.Patch)
		}
		h.counted(t, admission.Unready)
	})
}

// limited is a pod whose container has that limit.
func limited(cpu string) string {
	return `{"spec": {"containers": [{"name": "web", "resources": {"limits": {"cpu": ` + cpu + `}}}]}}`
}

func TestWhatIsNoReviewIsRefused(t *testing.T) {
	good := string(review(t, open().pod, nil))
	for name, c := range map[string]struct {
		method, kind, body string
		want               int
	}{
		"GET":                  {"GET", "application/json", good, http.StatusMethodNotAllowed},
		"a form":               {"POST", "application/x-www-form-urlencoded", good, http.StatusUnsupportedMediaType},
		"no content type":      {"POST", "", good, http.StatusUnsupportedMediaType},
		"a bad content type":   {"POST", "application/json; =", good, http.StatusUnsupportedMediaType},
		"no body":              {"POST", "application/json", "", http.StatusBadRequest},
		"no JSON":              {"POST", "application/json", "\x00\xff{", http.StatusBadRequest},
		"half a review":        {"POST", "application/json", good[:len(good)/2], http.StatusBadRequest},
		"two reviews":          {"POST", "application/json", good + good, http.StatusBadRequest},
		"nothing of a review":  {"POST", "application/json", `{}`, http.StatusBadRequest},
		"a list":               {"POST", "application/json", `[]`, http.StatusBadRequest},
		"a deep list":          {"POST", "application/json", strings.Repeat("[", 1<<20), http.StatusBadRequest},
		"an old version":       {"POST", "application/json", strings.Replace(good, "k8s.io/v1\"", "k8s.io/v1beta1\"", 1), 400},
		"an answer":            {"POST", "application/json", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, 400},
		"no question":          {"POST", "application/json", strings.Replace(good, `"question"`, `""`, 1), http.StatusBadRequest},
		"more than a pod has":  {"POST", "application/json", `"` + strings.Repeat("x", 5<<20), http.StatusRequestEntityTooLarge},
		"a review and 5 MiB":   {"POST", "application/json", good + strings.Repeat(" ", 5<<20), http.StatusRequestEntityTooLarge},
		"with its charset: ok": {"POST", "application/json; charset=utf-8", good, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(nil, at)
			r := httptest.NewRequest(c.method, admission.Path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.kind)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.want || w.Body.Len() > 1000 {
				t.Errorf("%d %.200s, want %d", w.Code, w.Body, c.want)
			}
			if c.want == http.StatusOK {
				h.counted(t, admission.Unready)
				return
			}
			h.counted(t, admission.BadRequest)
		})
	}
}

// slow is a body that does not come.
type slow struct{ until chan struct{} }

func (s slow) Read([]byte) (int, error) {
	<-s.until
	return 0, io.ErrUnexpectedEOF
}

// However many connect, few are worked on. The others are refused at once, which the API
// server takes for no answer.
func TestManyRequestsWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(nil, at)
		body := slow{make(chan struct{})}
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				r := httptest.NewRequest("POST", admission.Path, body)
				r.Header.Set("Content-Type", "application/json")
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", admission.Path, strings.NewReader("{}")))
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("beside 32 others: %d, want 429", w.Code)
		}
		close(body.until)
		all.Wait()
		if a := ask(t, h, review(t, open().pod, nil)); a == nil {
			t.Error("no answer after they have left")
		}
	})
}

func TestStrangersDoNotFillTheLog(t *testing.T) {
	h := serve(nil, at)
	broken := review(t, open().pod, func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`[]`) })
	for range 1000 {
		ask(t, h, broken)
	}
	if len(h.lines) == 0 || len(h.lines) > 20 || len(h.results) != 1000 {
		t.Errorf("%d lines and %d counted for 1000 requests, want 20 at most and all", len(h.lines), len(h.results))
	}
}

// The first pods of a new ReplicaSet come before every cache has it.
func TestAReplicaSetThatIsNewIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open()
		c := cache(t, interceptor.Funcs{}, s.deployment, s.object)
		h := serve(c, at)
		begun := time.Now()
		if a := ask(t, h, review(t, s.pod, nil)); a.Patch != nil {
			t.Errorf("patch %s", a.Patch)
		}
		if took := time.Since(begun); took > 300*time.Millisecond {
			t.Errorf("a ReplicaSet that is nowhere was waited for %v", took)
		}
		h.counted(t, admission.NotManaged)
		go func() {
			time.Sleep(100 * time.Millisecond)
			if err := c.Create(context.Background(), s.set()); err != nil {
				t.Error(err)
			}
		}()
		if a := ask(t, h, review(t, s.pod, nil)); a.Patch == nil {
			t.Error("no patch for a pod whose ReplicaSet came 100 ms later")
		}
		h.counted(t, admission.Sized)
		s.pod.OwnerReferences = nil
		begun = time.Now()
		ask(t, h, review(t, s.pod, nil))
		if took := time.Since(begun); took != 0 {
			t.Errorf("a pod that nobody owns was waited for %v", took)
		}
	})
}

// Of two objects for one workload the second says that the workload is taken.
func TestTheObjectThatDecidesCounts(t *testing.T) {
	for _, taken := range []string{"aaa", "zzz"} { // before and after the other one by name
		s := open()
		other := s.object.DeepCopy()
		other.Name = taken
		other.Status.Conditions[0].Status = metav1.ConditionFalse
		other.Status.Recommendation[0].Requests.CPU = quantity("111m")
		h := serve(cache(t, interceptor.Funcs{}, s.set(), s.deployment, s.object, other), at)
		a := ask(t, h, review(t, s.pod, nil))
		if a.Patch == nil || strings.Contains(string(a.Patch), "111m") {
			t.Errorf("%s: patch %s", taken, a.Patch)
		}
	}
}

// What was decided for another workload of the namespace is nothing for this one's pods.
func TestTheObjectOfAnotherWorkloadIsNotAsked(t *testing.T) {
	for name, target := range map[string]v1alpha1.TargetRef{
		"another name": {Kind: "Deployment", Name: "web2"},
		"another kind": {Kind: "StatefulSet", Name: "web"},
	} {
		s := open()
		other := s.object.DeepCopy()
		other.Name, other.Spec.TargetRef = "other", target
		h := serve(cache(t, interceptor.Funcs{}, s.set(), s.deployment, other), at)
		if a := ask(t, h, review(t, s.pod, nil)); a.Patch != nil {
			t.Errorf("%s: patch %s", name, a.Patch)
		}
		h.counted(t, admission.Undecided)
	}
}

// The cache still has the ReplicaSet of a Deployment that was deleted a moment ago.
func TestThePodOfAWorkloadThatIsGoneIsNotManaged(t *testing.T) {
	s := open()
	h := serve(cache(t, interceptor.Funcs{}, s.set(), s.object), at)
	if a := ask(t, h, review(t, s.pod, nil)); a.Patch != nil {
		t.Errorf("patch %s", a.Patch)
	}
	h.counted(t, admission.NotManaged)
	if len(h.lines) > 0 {
		t.Errorf("logged %q", h.lines)
	}
}

// A thousand workloads have their statuses written less often than a few.
func TestADecisionCountsLongerInALargeCluster(t *testing.T) {
	for n, want := range map[int]admission.Result{1: admission.Stale, 4000: admission.Sized} {
		s := open()
		s.object.Status.Decisions[0].Time = metav1.NewTime(noon.Add(-25 * time.Minute))
		objects := []client.Object{s.set(), s.deployment, s.object}
		for i := range n {
			o := s.object.DeepCopy()
			o.Namespace, o.Name = "other", fmt.Sprint("web", i)
			objects = append(objects, o)
		}
		h := serve(cache(t, interceptor.Funcs{}, objects...), at)
		ask(t, h, review(t, s.pod, nil))
		h.counted(t, want)
	}
}

// The API server trusts the authority that the secret has, also after it was renewed.
func TestTheWebhookIsServedOverTLSWithTheAuthorityThatIsRegistered(t *testing.T) {
	now := time.Now()
	const service = "aware-central.aware-system.svc"
	api := kubefake.NewClientset(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "aware-autoscaler"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "other.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte("theirs")}},
			{Name: "pods.awarescale.dev"},
		},
	})
	cert := &fleet.Certificate{Client: api, Namespace: "aware-system", Name: service, Now: func() time.Time { return now }}
	registration := admission.Registration{Client: api}
	register := func() []byte {
		t.Helper()
		if err := cert.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if ok, err := registration.Ensure(t.Context(), cert.CA()); !ok || err != nil {
			t.Fatalf("registered %v, %v", ok, err)
		}
		configurations := api.AdmissionregistrationV1().MutatingWebhookConfigurations()
		c, err := configurations.Get(t.Context(), "aware-autoscaler", metav1.GetOptions{})
		if err != nil || string(c.Webhooks[0].ClientConfig.CABundle) != "theirs" {
			t.Fatalf("%v: another webhook's authority is %q", err, c.Webhooks[0].ClientConfig.CABundle)
		}
		return c.Webhooks[1].ClientConfig.CABundle
	}
	first := register()

	s := open()
	h := serve(cache(t, interceptor.Funcs{}, s.set(), s.deployment, s.object), at)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: h, TLSConfig: cert.Config(), ErrorLog: log.New(io.Discard, "", 0)}
	go web.ServeTLS(l, "", "")
	defer web.Close()
	post := func(bundle []byte) error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		caller := &http.Client{Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: service, Time: func() time.Time { return now }},
			DisableKeepAlives: true,
		}}
		answer, err := caller.Post("https://"+l.Addr().String()+admission.Path, "application/json",
			bytes.NewReader(review(t, s.pod, nil)))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		if permission(t, answer.StatusCode, body).Patch == nil {
			t.Error("no patch")
		}
		return nil
	}
	if err := post(first); err != nil {
		t.Error(err)
	}
	if err := post([]byte("nobody")); err == nil {
		t.Error("a caller that trusts nobody was answered")
	}
	now = now.Add(340 * 24 * time.Hour) // 25 days before the certificate ends it is renewed
	old := &fleet.Certificate{Client: api, Namespace: "aware-system", Name: service, Now: func() time.Time { return now }}
	renewed := register()
	if bytes.Equal(renewed, first) || !bytes.Contains(renewed, bytes.TrimSpace(first)) {
		t.Error("the renewed authority is not registered, or the old one is not trusted any more")
	}
	// Another instance, which reads the secret anew, registers the same.
	if err := old.Ensure(t.Context()); err != nil || !bytes.Equal(old.CA(), renewed) {
		t.Errorf("another instance has another authority: %v", err)
	}
	if err := post(renewed); err != nil {
		t.Error(err)
	}
}

// Nothing is made that was not installed, and what is right is not written again.
func TestRegisteringWritesTheAuthorityAndNothingElse(t *testing.T) {
	api := kubefake.NewClientset()
	r := admission.Registration{Client: api}
	if ok, err := r.Ensure(t.Context(), []byte("ca")); ok || err != nil {
		t.Errorf("without a configuration: registered %v, %v", ok, err)
	}
	installed := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "aware-autoscaler"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "pods.awarescale.dev"}},
	}
	all := api.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := all.Create(t.Context(), installed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api.ClearActions()
	for range 3 {
		if ok, err := r.Ensure(t.Context(), []byte("ca")); !ok || err != nil {
			t.Errorf("registered %v, %v", ok, err)
		}
	}
	var verbs []string
	for _, a := range api.Actions() {
		verbs = append(verbs, a.GetVerb())
	}
	if !slices.Equal(verbs, []string{"get", "update", "get", "get"}) {
		t.Errorf("calls %v, want one update and then reads", verbs)
	}
}

// FuzzReview: whatever is sent is answered at once, with a permission or a status of 4xx, and
// a patch can be applied to the pod that was sent.
func FuzzReview(f *testing.F) {
	s := open()
	f.Add(review(f, s.pod, nil))
	f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",` +
		`"request":{"uid":"question","operation":"CREATE",` +
		`"resource":{"version":"v1","resource":"pods"},"object":` + limited(`"07E1000000000000"`) + `}}`))
	f.Add([]byte(`{}`))
	h := serve(cache(f, interceptor.Funcs{}, s.set(), s.deployment, s.object), at)
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest("POST", admission.Path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		begun := time.Now()
		h.ServeHTTP(w, r)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("answered after %v", took)
		}
		if w.Code >= 400 && w.Code < 500 {
			return
		}
		var answer, question admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &answer); w.Code != http.StatusOK || err != nil || !answer.Response.Allowed {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		if answer.Response.Patch == nil {
			return
		}
		if err := json.Unmarshal(body, &question); err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(answer.Response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := patch.Apply(question.Request.Object.Raw); err != nil {
			t.Fatalf("%s does not apply to %s: %v", answer.Response.Patch, question.Request.Object.Raw, err)
		}
	})
}
