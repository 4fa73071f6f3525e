package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/decisions"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// stream is central's stream of decisions, through the API server's service proxy.
// The proxy removes the caller's identity, so that it is sent once more: as a token
// that is made for the stream alone, or as the kubeconfig's own.
type stream struct {
	follow    bool
	last      int
	account   string // NAMESPACE/NAME of a service account to make a token of
	sendToken bool
	central   string // NAMESPACE/NAME of central's service
}

// tokenSeconds is how long a token for the stream is good: the shortest time that
// the API server makes one for.
const tokenSeconds = 600

func (s *stream) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVarP(&s.follow, "follow", "f", false, "Print each decision as it is made, until interrupted.")
	flags.IntVar(&s.last, "last", 10, "How many of the last decisions to print; central keeps up to 600.")
	flags.StringVar(&s.account, "as-account", "", "Read central's stream as this service account, NAMESPACE/NAME: "+
		"a token is made that is good for nothing else. You must be allowed to create its tokens, and it to get the object.")
	flags.BoolVar(&s.sendToken, "send-token", false, "Read central's stream with the bearer token of your kubeconfig. "+
		"Central sees it and could use it as you do: prefer --as-account.")
	flags.StringVar(&s.central, "central", "aware-system/aware-central", "Central's service, NAMESPACE/NAME.")
}

// wanted reports whether more is asked for than the object's status has.
func (s *stream) wanted() bool { return s.follow || s.last > 10 || s.account != "" || s.sendToken }

// check names the wrong flag, its value, and the rule.
func (s *stream) check() error {
	if s.last < 1 {
		return usage(fmt.Errorf("flag --last: %d: it must be above zero", s.last))
	}
	if s.account != "" && s.sendToken {
		return usage(errors.New("flags --as-account and --send-token: only one can be set"))
	}
	for flag, value := range map[string]string{"as-account": s.account, "central": s.central} {
		namespace, name, ok := strings.Cut(value, "/")
		if value != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/")) {
			return usage(fmt.Errorf("flag --%s: %q: it must be NAMESPACE/NAME", flag, value))
		}
	}
	return nil
}

// open opens an object's stream.
func (s *stream) open(ctx context.Context, config *rest.Config, namespace, name string) (io.ReadCloser, error) {
	token, err := s.token(ctx, config)
	if err != nil {
		return nil, err
	}
	if token == "" { // that of the kubeconfig
		config = rest.CopyConfig(config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return again{next} })
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the API server: %w", err)
	}
	home, service, _ := strings.Cut(s.central, "/")
	get := client.CoreV1().RESTClient().Get().Namespace(home).Resource("services").Name("https:"+service+":link").
		SubResource("proxy").Suffix("decisions", namespace, name).
		Param("last", strconv.Itoa(s.last)).Param("follow", strconv.FormatBool(s.follow))
	if token != "" {
		get.SetHeader(decisions.TokenHeader, token)
	}
	body, err := get.Stream(ctx)
	var status *apierrors.StatusError
	if errors.As(err, &status) { // central's answer is in the details
		err = errors.New(said(status))
	}
	if err != nil {
		return nil, fmt.Errorf("asking central, service %s: %w", s.central, err)
	}
	return body, nil
}

// said is what a server answered.
func said(e *apierrors.StatusError) string {
	text := e.ErrStatus.Message
	if d := e.ErrStatus.Details; d != nil {
		for _, cause := range d.Causes {
			text += ": " + strings.TrimSpace(cause.Message)
		}
	}
	return text
}

// token is a token that is made for the stream; empty when the kubeconfig's own is
// to be sent.
func (s *stream) token(ctx context.Context, config *rest.Config) (string, error) {
	if s.sendToken {
		return "", nil
	}
	if s.account == "" {
		return "", errors.New("central must know who asks, and the API server's proxy does not say it: " +
			"give --as-account NAMESPACE/NAME, or --send-token")
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a client for the API server: %w", err)
	}
	namespace, name, _ := strings.Cut(s.account, "/")
	seconds := int64(tokenSeconds)
	made, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{decisions.Audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("making a token of service account %s: %w", s.account, err)
	}
	return made.Status.Token, nil
}

// again sends the bearer token of a request a second time, in the header that the
// API server's proxy passes on.
type again struct{ next http.RoundTripper }

func (a again) RoundTrip(r *http.Request) (*http.Response, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, errors.New("flag --send-token: the kubeconfig has no bearer token")
	}
	r = r.Clone(r.Context())
	r.Header.Set(decisions.TokenHeader, token)
	return a.next.RoundTrip(r)
}

// read calls each with every decision of a stream, oldest first, until it ends.
func read(body io.Reader, each func(v1alpha1.DecisionStatus) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var d v1alpha1.DecisionStatus
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return fmt.Errorf("reading a decision: %w", err)
		}
		if err := each(d); err != nil {
			return err
		}
	}
	return lines.Err()
}
