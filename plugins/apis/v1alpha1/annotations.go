package v1alpha1

import "time"

// Prefix begins every annotation and label of AWARE. An unknown key under it is
// reported to its owner as an error: a misspelt limit must not be ignored
// silently.
const Prefix = "awarescale.dev/"

// ManagedLabel on a pod template, with the value "true", opts its workload in.
const ManagedLabel = Prefix + "managed"

// The annotations on a pod template. Quantities are Kubernetes quantities,
// durations are Go durations.
const (
	ModeAnnotation        = Prefix + "mode"         // off, observe (default), recommend, canary, auto
	PausedAnnotation      = Prefix + "paused"       // "true" holds everything as it is
	SLOLatencyPrefix      = Prefix + "slo-latency-" // + p50, p90, p95, p99: the latency at that percentile, at most
	SLOThroughput         = Prefix + "slo-throughput"
	SLOSourceAnnotation   = Prefix + "slo-source" // pod (default), prometheus
	SLOPortAnnotation     = Prefix + "slo-port"   // of the pod's metrics: a number or a container port's name; default metrics
	SLOPathAnnotation     = Prefix + "slo-path"   // default /metrics
	SLOMetricAnnotation   = Prefix + "slo-metric" // a histogram in seconds; default http_request_duration_seconds
	SLOServerAnnotation   = Prefix + "slo-server" // with slo-source prometheus: its URL
	MinReplicasAnnotation = Prefix + "min-replicas"
	MaxReplicasAnnotation = Prefix + "max-replicas"
	ScaleInAnnotation     = Prefix + "scale-in-window" // how far back a removal of replicas looks: 10s to 1h; default 5m
	MinCPUAnnotation      = Prefix + "min-cpu"         // of each container that has a CPU limit
	MaxCPUAnnotation      = Prefix + "max-cpu"
	MinMemoryAnnotation   = Prefix + "min-memory" // of each container that has a memory limit
	MaxMemoryAnnotation   = Prefix + "max-memory"
	OOMEvictAnnotation    = Prefix + "oom-evict" // "true": a pod in an OOM loop may be evicted, in mode auto
	AlgorithmAnnotation   = Prefix + "algorithm" // none (default), bcq: whether central learns the workload
	RuleAnnotation        = Prefix + "rule"      // captain (default), demand: by which nodes decide on CPU limits
	BudgetAnnotation      = Prefix + "budget"    // of the rule demand: share of requests that may be late; 0.85% for a p99
	WindowsAnnotation     = Prefix + "windows"   // of the rule demand: share of windows of 10 s over the SLO; default 5%
)

// What ScaleInAnnotation and the field scaleInWindow may be: a decision is made every 10 s, and a
// HorizontalPodAutoscaler has at most an hour.
const (
	LeastScaleInWindow = 10 * time.Second
	MostScaleInWindow  = time.Hour
)

// GeneratedLabel marks a MultidimPodAutoscaler that was made from annotations
// and follows them.
const GeneratedLabel = Prefix + "generated"
