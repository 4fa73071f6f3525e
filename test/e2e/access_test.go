package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/test/cluster/images"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webPorts is where each part serves its metrics.
var webPorts = map[string]int{"aware-agent": 10261, "aware-autoscaler": 10260, "aware-scheduler": 10259}

// insecure does not look at certificates: each part signs its own.
var insecure = &http.Client{Timeout: 10 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// metrics asks a part for its metrics.
func metrics(ctx context.Context, part, token string) (status int, text string, err error) {
	p, err := podOf(ctx, part)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("https://%s:%d/metrics", p.Status.PodIP, webPorts[part]), nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := insecure.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// readerToken is a token of an account that may read metrics, until the test ends.
func readerToken(t *testing.T, name string) string {
	t.Helper()
	must(t, "create", "serviceaccount", name)
	must(t, "create", "clusterrolebinding", name, "--clusterrole=aware-metrics-reader", "--serviceaccount=default:"+name)
	t.Cleanup(func() {
		ctx := context.Background()
		kubectl(ctx, "delete", "clusterrolebinding", name)
		kubectl(ctx, "delete", "serviceaccount", name)
	})
	return strings.TrimSpace(must(t, "create", "token", name))
}

// families asks a part for its metrics, and parses them.
func families(ctx context.Context, part, token string) (map[string]*dto.MetricFamily, error) {
	status, text, err := metrics(ctx, part, token)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d: %.80s", part, status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text))
}

// A node gets AWARE's programs from the registry that they were pushed to, by their digests.
func Test00TheImagesOfARegistryRun(t *testing.T) {
	firstOnly(t)
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace("aware-system")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			for _, image := range []images.Image{images.Agent, images.Central} {
				name := filepath.Base(image.Program)
				if strings.HasPrefix(s.ImageID, pushed+"/aware/"+name+"@sha256:") && s.Ready {
					seen[name] = true
				}
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("pulled and ready are %v of aware-agent and aware-central", seen)
	}
}

// A reader of metrics has a token of an account that an admin has given the role
// aware-metrics-reader. The scheduler's metrics say that it hears from the autoscaler.
func Test00MetricsAreForWhoeverMayReadThem(t *testing.T) {
	reader := readerToken(t, "reader")
	must(t, "create", "serviceaccount", "stranger")
	t.Cleanup(func() { kubectl(context.Background(), "delete", "serviceaccount", "stranger") })
	stranger := strings.TrimSpace(must(t, "create", "token", "stranger"))
	for part := range webPorts {
		// A part may be starting, or the API server too busy to review a token in time: the
		// part then says 503. Nobody may get the metrics while we wait.
		gets := func(who, token string, wanted ...int) {
			eventually(t, patience, fmt.Sprintf("%s answers %s with %v", part, who, wanted), func() (bool, string) {
				status, text, err := metrics(t.Context(), part, token)
				if status == http.StatusOK && !slices.Contains(wanted, status) {
					t.Fatalf("%s gives its metrics to %s: %.80s", part, who, text)
				}
				served := status != http.StatusOK || strings.Contains(text, "\naware_")
				return err == nil && served && slices.Contains(wanted, status), fmt.Sprintf("%d, %v: %.80s", status, err, text)
			})
		}
		// Kubernetes' components call nobody anonymous, who may not; ours asks for a token.
		gets("nobody", "", http.StatusUnauthorized, http.StatusForbidden)
		gets("a stranger", stranger, http.StatusForbidden)
		gets("a reader", reader, http.StatusOK)
	}
	eventually(t, patience, "the scheduler hears from the autoscaler what pods can use", func() (bool, string) {
		families, err := families(t.Context(), "aware-scheduler", reader)
		if err != nil || families["aware_scheduler_snapshot_age_seconds"] == nil {
			return false, fmt.Sprint("no age in the scheduler's metrics: ", err)
		}
		age := families["aware_scheduler_snapshot_age_seconds"].Metric[0].GetGauge().GetValue()
		return age < 10, fmt.Sprintf("the last answer is %v s old", age)
	})
}

// placed makes a pod that only the scheduler has to do with, and waits until it has a node.
func placed(t *testing.T, name string) {
	t.Helper()
	must(t, "run", name, "--image=none", "--image-pull-policy=Never", "--restart=Never",
		"--overrides", `{"spec":{"schedulerName":"aware-scheduler"}}`)
	t.Cleanup(func() { kubectl(context.Background(), "delete", "pod", name, "--now", "--wait=false") })
	must(t, "wait", "--for=condition=PodScheduled", "pod/"+name, "--timeout=180s")
}
