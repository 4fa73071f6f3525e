package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MultidimPodAutoscaler keeps a workload's service-level objective with as
// little CPU and memory as possible. It decides the number of replicas and the
// size of their containers together, and resizes them in place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=mpa,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.stage`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas.current`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.effective.cpu`
// +kubebuilder:printcolumn:name="Mem",type=string,JSONPath=`.status.effective.memory`
// +kubebuilder:printcolumn:name="SLO",type=string,JSONPath=`.status.sloPreservation`
// +kubebuilder:printcolumn:name="Reward",type=string,JSONPath=`.status.reward.mean`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MultidimPodAutoscaler struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired state.
	Spec MultidimPodAutoscalerSpec `json:"spec"`
	// The observed state.
	// +optional
	Status MultidimPodAutoscalerStatus `json:"status,omitempty"`
}

// MultidimPodAutoscalerList is a list of them.
//
// +kubebuilder:object:root=true
type MultidimPodAutoscalerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MultidimPodAutoscaler `json:"items"`
}

// MultidimPodAutoscalerSpec is the desired state of a workload.
//
// +kubebuilder:validation:XValidation:rule="self.targetRef == oldSelf.targetRef",message="targetRef cannot be changed: make another object for another target"
type MultidimPodAutoscalerSpec struct {
	// The workload: a Deployment, a StatefulSet, or a ReplicaSet that no
	// Deployment owns, in this object's namespace.
	TargetRef TargetRef `json:"targetRef"`

	// How far AWARE may go: off (nothing is read, what was changed is
	// restored), observe (read and report), recommend (also say what would be
	// done), canary (also do it to one replica), auto (do it to all).
	// +kubebuilder:validation:Enum=off;observe;recommend;canary;auto
	// +kubebuilder:default=observe
	// +optional
	Mode string `json:"mode,omitempty"`

	// Holds everything as it is, in every mode: nothing is resized or scaled,
	// what is in force stays.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// The owner's word that a pod in an OOM loop may be evicted, in mode auto: once for
	// each loop, as far as its PodDisruptionBudgets allow, and only where more memory was
	// asked for and the container is still down. See the condition OOMLoop.
	// +optional
	OOMEvict bool `json:"oomEvict,omitempty"`

	// The service-level objective. Without one only utilisation counts.
	// +optional
	SLO *SLO `json:"slo,omitempty"`

	// How the SLO is weighed against efficiency.
	// +optional
	Objective *Objective `json:"objective,omitempty"`

	// Limits that AWARE never exceeds.
	// +optional
	Constraints Constraints `json:"constraints,omitempty"`

	// The learner of this workload.
	// +optional
	Learner *Learner `json:"learner,omitempty"`

	// The program that recommends. Empty or "aware" is this project. With
	// another name AWARE only observes, and that program writes
	// status.recommendation.
	// +optional
	Recommender *Recommender `json:"recommender,omitempty"`
}

// TargetRef names a workload in the same namespace.
type TargetRef struct {
	// Group and version, such as apps/v1.
	// +kubebuilder:validation:Enum=apps/v1
	// +kubebuilder:default=apps/v1
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the workload.
	// +kubebuilder:validation:Enum=Deployment;StatefulSet;ReplicaSet
	Kind string `json:"kind"`
	// Name of the workload.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// SLO is a service-level objective, and where it is measured.
//
// +kubebuilder:validation:XValidation:rule="has(self.latency) || has(self.throughput)",message="an slo needs latency, throughput, or both"
type SLO struct {
	// The latency objective.
	// +optional
	Latency *LatencySLO `json:"latency,omitempty"`
	// Requests per second, at least, over all replicas.
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE]...') && quantity(string(self)).isGreaterThan(quantity('0')) && quantity(string(self)).compareTo(quantity('1P')) <= 0",message="throughput must be above zero requests per second, and at most 1P"
	// +optional
	Throughput *resource.Quantity `json:"throughput,omitempty"`
	// Where latency and throughput are read.
	// +kubebuilder:default={}
	// +optional
	Source SLOSource `json:"source,omitempty"`
}

// LatencySLO is a bound on one percentile of latency.
type LatencySLO struct {
	// The percentile of requests, such as 99.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	// +kubebuilder:default=99
	// +optional
	Percentile int32 `json:"percentile,omitempty"`
	// The latency at that percentile, at most, such as 50ms.
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="threshold must be above zero"
	Threshold metav1.Duration `json:"threshold"`
}

// SLOSource says where latency and throughput are read.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'prometheus' || has(self.server)",message="source type prometheus needs server, the URL of a Prometheus server"
type SLOSource struct {
	// pod: the node agent reads the pod's own Prometheus histogram. prometheus:
	// central asks a Prometheus server for it.
	// +kubebuilder:validation:Enum=pod;prometheus
	// +kubebuilder:default=pod
	// +optional
	Type string `json:"type,omitempty"`
	// The pod's port with metrics: a number, or the name of a container's port.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:default="metrics"
	// +optional
	Port string `json:"port,omitempty"`
	// The path of the metrics.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:default="/metrics"
	// +optional
	Path string `json:"path,omitempty"`
	// A histogram of request durations in seconds.
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_:][a-zA-Z0-9_:]*$`
	// +kubebuilder:default="http_request_duration_seconds"
	// +optional
	Metric string `json:"metric,omitempty"`
	// The URL of the Prometheus server, with type prometheus.
	// +kubebuilder:validation:Pattern=`^https?://`
	// +optional
	Server string `json:"server,omitempty"`
}

// Objective says how the SLO is weighed against efficiency.
type Objective struct {
	// The weight of the SLO in the reward, from 0 to 1; the rest is
	// utilisation's (AWARE, section 2.2).
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE]...') && quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('1')) <= 0",message="alpha must be between 0 and 1"
	// +kubebuilder:default="0.5"
	// +optional
	Alpha *resource.Quantity `json:"alpha,omitempty"`
}

// Constraints is limits that AWARE never exceeds.
type Constraints struct {
	// Replicas. Without it the number of replicas is left alone.
	// +optional
	Replicas *ReplicaConstraints `json:"replicas,omitempty"`
	// Containers, by name; "*" is every container not named. A container
	// without a limit of a resource is not resized in that resource.
	// +kubebuilder:validation:MaxItems=4
	// +listType=map
	// +listMapKey=name
	// +optional
	Containers []ContainerConstraints `json:"containers,omitempty"`
}

// ReplicaConstraints bounds the number of replicas.
//
// +kubebuilder:validation:XValidation:rule="self.min <= self.max",message="replicas: min must not be above max"
type ReplicaConstraints struct {
	// The minimum.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	// +optional
	Min int32 `json:"min,omitempty"`
	// The maximum.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Max int32 `json:"max"`
	// How far back a removal of replicas looks, from 10s to 1h: as many stay as were wanted within this time, and as
	// carry its largest burst beneath their ceilings. Default 5m, as of a HorizontalPodAutoscaler's scaleDown.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('1h')",message="scaleInWindow must be from 10s to 1h"
	// +optional
	ScaleInWindow *metav1.Duration `json:"scaleInWindow,omitempty"`
}

// ContainerConstraints bounds the limits of one container. As everywhere here, an exponent
// has two characters at most: quantity() computes with a number of as many digits as the
// exponent says.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || !has(self.min.cpu) || !has(self.max.cpu) || [self.min.cpu, self.max.cpu].exists(q, string(q).matches('[eE]...')) || quantity(string(self.min.cpu)).compareTo(quantity(string(self.max.cpu))) <= 0",message="container: min cpu must not be above max cpu"
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || !has(self.min.memory) || !has(self.max.memory) || [self.min.memory, self.max.memory].exists(q, string(q).matches('[eE]...')) || quantity(string(self.min.memory)).compareTo(quantity(string(self.max.memory))) <= 0",message="container: min memory must not be above max memory"
type ContainerConstraints struct {
	// The container's name, or "*".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// The smallest limits. Default: of CPU 50m, or the template's request where
	// that is less; of memory the template's request. What is decided of memory goes below
	// it only when that is asked for here, or by a max below it.
	// +kubebuilder:validation:XValidation:rule="(!has(self.cpu) || !string(self.cpu).matches('[eE]...')) && (!has(self.memory) || !string(self.memory).matches('[eE]...'))",message="the exponent must have at most two characters"
	// +optional
	Min *Size `json:"min,omitempty"`
	// The largest limits. Default: the template's limit.
	// +kubebuilder:validation:XValidation:rule="(!has(self.cpu) || !string(self.cpu).matches('[eE]...')) && (!has(self.memory) || !string(self.memory).matches('[eE]...'))",message="the exponent must have at most two characters"
	// +optional
	Max *Size `json:"max,omitempty"`
	// What AWARE controls; both by default.
	// +kubebuilder:validation:items:Enum=cpu;memory
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	ControlledResources []corev1.ResourceName `json:"controlledResources,omitempty"`
}

// Most is the largest amount. Its thousandths, in which CPU is counted, fit into an int64.
var Most = resource.MustParse("1P")

// Size is an amount of CPU and an amount of memory, each above zero; either may
// be left out.
type Size struct {
	// CPU, such as 250m.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory, such as 128Mi.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Learner says how a workload is learned.
type Learner struct {
	// The algorithm. none: a rule decides (HPA's and VPA's arithmetic). bcq: the rule decides at first, and a policy is
	// learned of what it does (discrete BCQ); the policy decides once it is as good, and hands back when it is not.
	// +kubebuilder:validation:Enum=none;bcq
	// +kubebuilder:default=none
	// +optional
	Algorithm string `json:"algorithm,omitempty"`
	// Of bcq: whether the rule decides at first. Without it a policy decides as soon as there is one.
	// +kubebuilder:default=true
	// +optional
	Bootstrap *bool `json:"bootstrap,omitempty"`
	// Of bcq, for high-stakes workloads: nothing is ever tried on the workload, and when the policy has to learn again the rule
	// decides meanwhile.
	// +optional
	KeepOfflineWhileRetraining bool `json:"keepOfflineWhileRetraining,omitempty"`
	// Of bcq: the rewards at which its stages change. Without them they follow from what the rule earns.
	// +optional
	Thresholds *LearnerThresholds `json:"thresholds,omitempty"`
	// The rule by which nodes decide on CPU limits, beneath the ceiling. captain, the default: by the share of
	// throttled periods. demand: by the container's demand and its scatter, with a margin that the SLO's error budget
	// moves. It needs an SLO of latency; while that is not measured, the captain decides.
	// +kubebuilder:validation:Enum=captain;demand
	// +optional
	Rule string `json:"rule,omitempty"`
	// Of the rule demand: the error budget, the share of an hour's requests that may take longer than the SLO's
	// latency, such as 0.5%. The default is 85 % of what the SLO's percentile allows: 0.85% for a p99.
	// +kubebuilder:validation:Pattern=`^([1-9]?[0-9])(\.[0-9]{1,4})?%$`
	// +optional
	Budget string `json:"budget,omitempty"`
	// Of the rule demand: the share of windows of ten seconds in which more requests than the SLO's percentile allows may
	// take longer than its latency, such as 3%. The default is 5%.
	// +kubebuilder:validation:Pattern=`^([1-9]?[0-9])(\.[0-9]{1,4})?%$`
	// +optional
	Windows string `json:"windows,omitempty"`
}

// LearnerThresholds are rewards of an episode of 100 steps, which is worth 200 at most (AWARE, Algorithm 1).
//
// +kubebuilder:validation:XValidation:rule="[self.online, self.serving].exists(q, string(q).matches('[eE]...')) || quantity(string(self.online)).compareTo(quantity(string(self.serving))) <= 0",message="thresholds: online must not be above serving"
type LearnerThresholds struct {
	// What a learned policy must be worth before it decides: the lower end of an estimate from what the rule did.
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE]...') && quantity(string(self)).compareTo(quantity('-1000')) >= 0 && quantity(string(self)).compareTo(quantity('200')) <= 0",message="a threshold of rewards must be between -1000 and 200"
	Online resource.Quantity `json:"online"`
	// What it must earn to be left as it is.
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE]...') && quantity(string(self)).compareTo(quantity('-1000')) >= 0 && quantity(string(self)).compareTo(quantity('200')) <= 0",message="a threshold of rewards must be between -1000 and 200"
	Serving resource.Quantity `json:"serving"`
	// The standard deviation of its episodes' rewards, at most.
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE]...') && quantity(string(self)).compareTo(quantity('0')) > 0 && quantity(string(self)).compareTo(quantity('1000')) <= 0",message="variance must be above 0 and at most 1000"
	Variance resource.Quantity `json:"variance"`
}

// Recommender names the program that recommends.
type Recommender struct {
	// Its name.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// MultidimPodAutoscalerStatus is the observed state.
type MultidimPodAutoscalerStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The target, as Kind/name.
	// +optional
	Target string `json:"target,omitempty"`
	// Where the workload stands in AWARE's life cycle (ATC'23, Algorithm 1):
	// Initialized, Offline, Online, Serving.
	// +optional
	Stage string `json:"stage,omitempty"`
	// Replicas, ready and desired.
	// +optional
	Replicas ReplicaStatus `json:"replicas,omitempty"`
	// The recommended limits of each container, in every mode.
	// +listType=map
	// +listMapKey=name
	// +optional
	Recommendation []ContainerSize `json:"recommendation,omitempty"`
	// The mean of the limits in force in one replica, as the nodes report them;
	// the API can say something else.
	// +optional
	Effective *Size `json:"effective,omitempty"`
	// The rewards of the last episodes.
	// +optional
	Reward *RewardStatus `json:"reward,omitempty"`
	// Objective over measured, at most 1, over the last step; "unknown" when it
	// could not be measured.
	// +optional
	SLOPreservation string `json:"sloPreservation,omitempty"`
	// The latency at the SLO's percentile over the last step.
	// +optional
	Latency *metav1.Duration `json:"latency,omitempty"`
	// The policy that decides.
	// +optional
	Policy *PolicyStatus `json:"policy,omitempty"`
	// Of the rule demand: the margin between demand and limit, as the logarithm of a number of deviations. The SLO's error
	// budget moves it.
	// +optional
	Margin string `json:"margin,omitempty"`
	// The last decisions, newest first.
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +optional
	Decisions []DecisionStatus `json:"decisions,omitempty"`
	// Resizes since the object was made: in place through the API (L2), and by
	// node agents (L1).
	// +optional
	Resizes ResizeStatus `json:"resizes,omitempty"`
	// The last pod that was evicted because of an OOM loop, with spec.oomEvict. It is
	// written before the pod is evicted.
	// +optional
	LastOOMEviction *OOMEviction `json:"lastOOMEviction,omitempty"`
	// Ready, Active, FallbackActive, Paused, ConflictDetected, ResizeDeferred, OOMLoop.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReplicaStatus counts replicas.
type ReplicaStatus struct {
	// Ready now.
	// +optional
	Current int32 `json:"current"`
	// Desired by the last decision.
	// +optional
	Desired int32 `json:"desired"`
}

// ContainerSize is what was decided for one container.
type ContainerSize struct {
	// The container's name.
	Name string `json:"name"`
	// What scheduling reserves for it: its CPU request. Its CPU limit is the ceiling for
	// bursts, the owner's maximum, unless the template requests as much as its limit.
	// +optional
	Requests *Size `json:"requests,omitempty"`
	// The memory that it needs. Its memory request follows in the template's proportion. Its memory limit is no
	// lower than the template's, as far as the owner's maximum allows.
	// +optional
	Limits Size `json:"limits,omitempty"`
	// The limits of the template's container that this was decided for. When the
	// template's are others by now, new pods start with the template's size.
	// +optional
	Template *Size `json:"template,omitempty"`
}

// RewardStatus sums up episodes of 100 steps; an episode is worth 200 at most.
type RewardStatus struct {
	// The mean reward of the last episodes, the running one scaled to its full length.
	Mean string `json:"mean"`
	// Their standard deviation.
	Std string `json:"std"`
	// Complete episodes.
	Episodes int32 `json:"episodes"`
}

// PolicyStatus names the policy that decides.
type PolicyStatus struct {
	// Its version.
	Version string `json:"version"`
	// Its kind: rule, or learned.
	Source string `json:"source"`
	// The rule by which nodes decide on CPU limits now: captain, or demand.
	// +optional
	NodeRule string `json:"nodeRule,omitempty"`
}

// DecisionStatus is one decision: what it was made from, and what came of it.
type DecisionStatus struct {
	// When.
	Time metav1.Time `json:"time"`
	// The container that was decided on, when the workload has several.
	// +optional
	Container string `json:"container,omitempty"`
	// What was observed, by signal (such as cpu-usage or latency), in base
	// units: cores, bytes, seconds, requests per second, ratios and counts. A
	// signal that was not observed is left out.
	// +optional
	Signals map[string]resource.Quantity `json:"signals,omitempty"`
	// What the action sets: replicas, cpu-limit in cores, memory-limit in
	// bytes. What it does not set is left out.
	// +optional
	Sets map[string]resource.Quantity `json:"sets,omitempty"`
	// What was observed, in words.
	Inputs string `json:"inputs"`
	// What was decided, in words.
	Action string `json:"action"`
	// What came of it.
	Effect string `json:"effect"`
	// Why it was decided or refused.
	// +optional
	Reason string `json:"reason,omitempty"`
	// What changed the action before it was carried out: min, max, dwell,
	// rate-up, rate-down, usage, slo, burst, budget, stale, paused, fallback.
	// +listType=atomic
	// +optional
	ClippedBy []string `json:"clippedBy,omitempty"`
	// The policy that decided.
	Policy string `json:"policy"`
	// What the rule would have done, in words, where a learned policy did
	// something else, or something else was tried. As the rule wanted it, before
	// anything was clipped.
	// +optional
	Rule string `json:"rule,omitempty"`
}

// ResizeStatus counts resizes.
type ResizeStatus struct {
	// Through pods/resize.
	// +optional
	API int64 `json:"api"`
	// By node agents, of the pods that are running.
	// +optional
	Node int64 `json:"node"`
}

// OOMEviction is the eviction of a pod because of an OOM loop.
type OOMEviction struct {
	// When.
	Time metav1.Time `json:"time"`
	// The pod's name.
	Pod string `json:"pod"`
	// The pod's UID.
	UID types.UID `json:"uid"`
	// The container that was killed again and again.
	Container string `json:"container"`
	// Its memory limit when the loop was found.
	MemoryLimit resource.Quantity `json:"memoryLimit"`
	// The memory limit that its replacement is to get.
	Wanted resource.Quantity `json:"wanted"`
}

// The conditions of a MultidimPodAutoscaler.
const (
	Ready            = "Ready"            // the spec is valid, the target is found, and what is needed can be read
	Active           = "Active"           // AWARE may act and does
	FallbackActive   = "FallbackActive"   // the rule decides, not a learner
	Paused           = "Paused"           // its owner pauses it
	ConflictDetected = "ConflictDetected" // another autoscaler moves the same knobs; AWARE only recommends
	ResizeDeferred   = "ResizeDeferred"   // a node has no room for a resize, now or ever
	SLOObserved      = "SLOObserved"      // latency and throughput can be read
	OOMLoop          = "OOMLoop"          // a container is killed again and again for want of memory
)

// The algorithms of spec.learner.
const (
	AlgorithmNone = "none"
	AlgorithmBCQ  = "bcq"
)

// The stages.
const (
	StageInitialized = "Initialized"
	StageOffline     = "Offline"
	StageOnline      = "Online"
	StageServing     = "Serving"
)
