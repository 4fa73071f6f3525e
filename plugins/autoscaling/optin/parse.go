package optin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OptedIn reports whether a pod template opts its workload in.
func OptedIn(template corev1.PodTemplateSpec) bool {
	return template.Labels[v1alpha1.ManagedLabel] == "true"
}

// Mentions reports whether a pod template has any annotation or label of AWARE.
func Mentions(template corev1.PodTemplateSpec) bool {
	for _, m := range []map[string]string{template.Annotations, template.Labels} {
		for key := range m {
			if strings.HasPrefix(key, v1alpha1.Prefix) {
				return true
			}
		}
	}
	return false
}

// AnnotationError says which annotation cannot be read, its value, and the rule.
type AnnotationError struct {
	Key   string
	Value string
	Rule  string
}

func (e *AnnotationError) Error() string {
	return fmt.Sprintf("annotation %s: %q: %s", e.Key, e.Value, e.Rule)
}

// Parse reads the annotations of a pod template into a spec, without the
// target. It reports every annotation that it cannot read, not only the first.
// With an error the spec must not be used.
func Parse(template corev1.PodTemplateSpec) (v1alpha1.MultidimPodAutoscalerSpec, []error) {
	r := reader{left: map[string]string{}}
	for key, value := range template.Annotations {
		if strings.HasPrefix(key, v1alpha1.Prefix) {
			r.left[key] = value
		}
	}
	spec := v1alpha1.MultidimPodAutoscalerSpec{Mode: string(api.Observe)}
	if value, ok := r.take(v1alpha1.ModeAnnotation); ok {
		mode, err := api.ParseMode(value)
		if err != nil {
			r.fail(v1alpha1.ModeAnnotation, value, "it must be one of off, observe, recommend, canary, auto")
		}
		spec.Mode = string(mode)
	}
	spec.Paused = r.yes(v1alpha1.PausedAnnotation)
	spec.OOMEvict = r.yes(v1alpha1.OOMEvictAnnotation)
	spec.SLO = r.slo(template)
	spec.Constraints = r.constraints()
	spec.Learner = r.learner(spec.SLO)
	for _, key := range slices.Sorted(maps.Keys(r.left)) {
		r.fail(key, r.left[key], "unknown key; known are "+strings.Join(known(), ", "))
	}
	return spec, r.errs
}

// reader takes annotations one by one. What is left at the end is unknown.
type reader struct {
	left map[string]string
	errs []error
}

func (r *reader) take(key string) (string, bool) {
	value, ok := r.left[key]
	delete(r.left, key)
	return value, ok
}

func (r *reader) fail(key, value, rule string) {
	r.errs = append(r.errs, &AnnotationError{Key: key, Value: value, Rule: rule})
}

// yes reads an annotation that is true or false; false when there is none.
func (r *reader) yes(key string) bool {
	value, ok := r.take(key)
	if !ok {
		return false
	}
	is, err := strconv.ParseBool(value)
	if err != nil {
		r.fail(key, value, "it must be true or false")
	}
	return is
}

var percentiles = map[string]int32{"p50": 50, "p90": 90, "p95": 95, "p99": 99}

func known() []string {
	keys := []string{
		v1alpha1.ModeAnnotation, v1alpha1.PausedAnnotation,
		v1alpha1.SLOThroughput, v1alpha1.SLOSourceAnnotation, v1alpha1.SLOPortAnnotation,
		v1alpha1.SLOPathAnnotation, v1alpha1.SLOMetricAnnotation, v1alpha1.SLOServerAnnotation,
		v1alpha1.MinReplicasAnnotation, v1alpha1.MaxReplicasAnnotation, v1alpha1.ScaleInAnnotation,
		v1alpha1.MinCPUAnnotation, v1alpha1.MaxCPUAnnotation,
		v1alpha1.MinMemoryAnnotation, v1alpha1.MaxMemoryAnnotation, v1alpha1.OOMEvictAnnotation,
		v1alpha1.AlgorithmAnnotation, v1alpha1.RuleAnnotation, v1alpha1.BudgetAnnotation, v1alpha1.WindowsAnnotation,
	}
	for p := range percentiles {
		keys = append(keys, v1alpha1.SLOLatencyPrefix+p)
	}
	slices.Sort(keys)
	return keys
}

func (r *reader) slo(template corev1.PodTemplateSpec) *v1alpha1.SLO {
	var slo v1alpha1.SLO
	for _, p := range slices.Sorted(maps.Keys(percentiles)) {
		key := v1alpha1.SLOLatencyPrefix + p
		value, ok := r.take(key)
		if !ok {
			continue
		}
		d, err := time.ParseDuration(value)
		switch {
		case err != nil || d <= 0:
			r.fail(key, value, "it must be a duration above zero, such as 50ms")
		case slo.Latency != nil:
			r.fail(
				key,
				value,
				fmt.Sprintf("only one latency percentile can be the objective, and slo-latency-p%d is set, too",
					slo.Latency.Percentile),
			)
		default:
			slo.Latency = &v1alpha1.LatencySLO{
				Percentile: percentiles[p],
				Threshold:  metav1.Duration{Duration: d},
			}
		}
	}
	if q := r.quantity(v1alpha1.SLOThroughput, "requests per second above zero, such as 100"); q != nil {
		slo.Throughput = q
	}
	sourced := false
	text := func(key, otherwise string) string {
		value, ok := r.take(key)
		if !ok {
			return otherwise
		}
		sourced = true
		if value == "" {
			r.fail(key, value, "it must not be empty")
		}
		return value
	}
	kind, kindSet := r.left[v1alpha1.SLOSourceAnnotation]
	slo.Source = v1alpha1.SLOSource{
		Type:   text(v1alpha1.SLOSourceAnnotation, "pod"),
		Port:   text(v1alpha1.SLOPortAnnotation, "metrics"),
		Path:   text(v1alpha1.SLOPathAnnotation, "/metrics"),
		Metric: text(v1alpha1.SLOMetricAnnotation, "http_request_duration_seconds"),
		Server: text(v1alpha1.SLOServerAnnotation, ""),
	}
	if slo.Latency == nil && slo.Throughput == nil {
		if sourced && len(r.errs) == 0 {
			r.fail(v1alpha1.SLOSourceAnnotation, kind,
				"an SLO's source is set, but no slo-latency-pNN or slo-throughput")
		}
		return nil
	}
	switch slo.Source.Type {
	case "pod":
		if _, err := ResolvePort(slo.Source.Port, template.Spec); err != nil {
			r.fail(v1alpha1.SLOPortAnnotation, slo.Source.Port,
				"the SLO has no source: "+err.Error()+"; name the port of the pod's metrics, or set slo-source")
		}
	case "prometheus":
		if slo.Source.Server == "" {
			r.fail(v1alpha1.SLOServerAnnotation, "",
				"the SLO has no source: slo-source prometheus needs slo-server, the URL of a Prometheus server")
		}
	default:
		if kindSet {
			r.fail(v1alpha1.SLOSourceAnnotation, kind, "it must be pod or prometheus")
		}
	}
	return &slo
}

// learner reads the algorithm, the rule of the nodes, and its error budget; nil when there is none of them.
func (r *reader) learner(slo *v1alpha1.SLO) *v1alpha1.Learner {
	l := v1alpha1.Learner{}
	algorithm, named := r.take(v1alpha1.AlgorithmAnnotation)
	if named && algorithm != v1alpha1.AlgorithmNone && algorithm != v1alpha1.AlgorithmBCQ {
		r.fail(v1alpha1.AlgorithmAnnotation, algorithm, "it must be none or bcq")
	}
	l.Algorithm = algorithm
	rule, ruled := r.take(v1alpha1.RuleAnnotation)
	switch {
	case ruled && rule != "captain" && rule != "demand":
		r.fail(v1alpha1.RuleAnnotation, rule, "it must be captain or demand")
	case rule == "demand" && (slo == nil || slo.Latency == nil):
		r.fail(v1alpha1.RuleAnnotation, rule, "its margin follows from an SLO of latency: set "+v1alpha1.SLOLatencyPrefix+"p99")
	}
	l.Rule = rule
	share := func(key string) string {
		value, ok := r.take(key)
		if !ok {
			return ""
		}
		if _, err := Share(value); err != nil {
			r.fail(key, value, err.Error())
		}
		if rule != "demand" {
			r.fail(key, value, "it is of the rule demand, and "+v1alpha1.RuleAnnotation+" does not say that")
		}
		return value
	}
	l.Budget, l.Windows = share(v1alpha1.BudgetAnnotation), share(v1alpha1.WindowsAnnotation)
	if l == (v1alpha1.Learner{}) {
		return nil
	}
	return &l
}

// Share reads a share that is given in percent, such as 0.5%: above 0 and below 100.
func Share(text string) (mdp.Ratio, error) {
	number, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || len(text) > 8 || !(v > 0 && v < 100) {
		return 0, fmt.Errorf("it must be a share in percent, above 0%% and below 100%%, such as 0.5%%")
	}
	return mdp.Ratio(v / 100), nil
}

// ResolvePort finds the number of a port that is given as a number or as the
// name of a port of a container that runs as long as the pod does: native sidecars, too.
func ResolvePort(port string, pod corev1.PodSpec) (int32, error) {
	if n, err := strconv.ParseInt(port, 10, 32); err == nil {
		if n < 1 || n > 65535 {
			return 0, fmt.Errorf("port %d: it must be from 1 to 65535", n)
		}
		return int32(n), nil
	}
	running := slices.Clone(pod.Containers)
	for _, c := range pod.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			running = append(running, c)
		}
	}
	var names []string
	for _, c := range running {
		for _, p := range c.Ports {
			if p.Name == port {
				return p.ContainerPort, nil
			}
			if p.Name != "" {
				names = append(names, p.Name)
			}
		}
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("no container has a port named %q, nor any other named port", port)
	}
	return 0, fmt.Errorf("no container has a port named %q; there are %s", port, strings.Join(names, ", "))
}

// scaleIn reads how far back a removal of replicas looks.
func (r *reader) scaleIn(c *v1alpha1.ReplicaConstraints) {
	value, ok := r.take(v1alpha1.ScaleInAnnotation)
	if !ok {
		return
	}
	d, err := time.ParseDuration(value)
	switch {
	case err != nil || d < v1alpha1.LeastScaleInWindow || d > v1alpha1.MostScaleInWindow:
		r.fail(v1alpha1.ScaleInAnnotation, value, "it must be a duration from 10s to 1h, such as 5m")
	case c == nil && len(r.errs) > 0: // bounds of replicas that cannot be read are said already
	case c == nil:
		r.fail(v1alpha1.ScaleInAnnotation, value, "it is of the number of replicas, and needs max-replicas")
	default:
		c.ScaleInWindow = &metav1.Duration{Duration: d}
	}
}

func (r *reader) constraints() v1alpha1.Constraints {
	var c v1alpha1.Constraints
	least, most := r.count(v1alpha1.MinReplicasAnnotation), r.count(v1alpha1.MaxReplicasAnnotation)
	switch {
	case most == 0 && least != 0:
		r.fail(v1alpha1.MinReplicasAnnotation, fmt.Sprint(least), "min-replicas needs max-replicas")
	case most != 0 && least > most:
		r.fail(v1alpha1.MinReplicasAnnotation, fmt.Sprint(least),
			fmt.Sprintf("min must not be above max, and max-replicas is %d", most))
	case most != 0:
		c.Replicas = &v1alpha1.ReplicaConstraints{Min: max(1, least), Max: most}
	}
	r.scaleIn(c.Replicas)
	all := v1alpha1.ContainerConstraints{Name: "*"}
	minCPU, maxCPU := r.limits(v1alpha1.MinCPUAnnotation, v1alpha1.MaxCPUAnnotation,
		"CPU above zero, such as 250m")
	minMemory, maxMemory := r.limits(v1alpha1.MinMemoryAnnotation, v1alpha1.MaxMemoryAnnotation,
		"memory above zero, such as 128Mi")
	if minCPU != nil || minMemory != nil {
		all.Min = &v1alpha1.Size{CPU: minCPU, Memory: minMemory}
	}
	if maxCPU != nil || maxMemory != nil {
		all.Max = &v1alpha1.Size{CPU: maxCPU, Memory: maxMemory}
	}
	if all.Min != nil || all.Max != nil {
		c.Containers = []v1alpha1.ContainerConstraints{all}
	}
	return c
}

func (r *reader) count(key string) int32 {
	value, ok := r.take(key)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 1 || n > 100000 {
		r.fail(key, value, "it must be a whole number from 1 to 100000")
		return 0
	}
	return int32(n)
}

func (r *reader) limits(minKey, maxKey, what string) (least, most *resource.Quantity) {
	least, most = r.quantity(minKey, what), r.quantity(maxKey, what)
	if least != nil && most != nil && least.Cmp(*most) > 0 {
		r.fail(
			minKey,
			least.String(),
			fmt.Sprintf("min must not be above max, and %s is %s", strings.TrimPrefix(maxKey, v1alpha1.Prefix),
				most),
		)
	}
	return least, most
}

// long finds an exponent of three characters or more. No quantity needs one, and
// resource.ParseQuantity computes with a number of as many digits as the exponent says:
// "07E1000000000000" would take hours.
var long = regexp.MustCompile(`[eE]...`)

func (r *reader) quantity(key, what string) *resource.Quantity {
	value, ok := r.take(key)
	if !ok {
		return nil
	}
	if len(value) > 20 || long.MatchString(value) {
		r.fail(key, value, "it must be a quantity of "+what+", of 20 characters at most, two of them in an exponent")
		return nil
	}
	q, err := resource.ParseQuantity(value)
	switch {
	case err != nil || q.Sign() <= 0:
		r.fail(key, value, "it must be a quantity of "+what)
		return nil
	case q.Cmp(v1alpha1.Most) > 0:
		r.fail(key, value, "it must be at most "+v1alpha1.Most.String())
		return nil
	}
	return &q
}
