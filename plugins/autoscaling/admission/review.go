package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reviewVersion is the version of reviews that is spoken.
const reviewVersion = "admission.k8s.io/v1"

// ParseReview reads a review of an API server:
//
//	{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "...", "object": {...}, ...}}
func ParseReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("reading a review: %w", err)
	}
	switch {
	case review.APIVersion != reviewVersion || review.Kind != "AdmissionReview":
		return nil, fmt.Errorf("reading a review: %.60q, kind %.60q: it must be an AdmissionReview of %s",
			review.APIVersion, review.Kind, reviewVersion)
	case review.Request == nil:
		return nil, fmt.Errorf("reading a review: request: it is missing")
	case review.Request.UID == "":
		return nil, fmt.Errorf("reading a review: request.uid: it is empty")
	}
	return review.Request, nil
}

// wirePod is the part of a pod that is read. The rest may be anything.
type wirePod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Resources  json.RawMessage `json:"resources"`
		Containers []struct {
			Name         string                         `json:"name"`
			ResizePolicy []corev1.ContainerResizePolicy `json:"resizePolicy"`
			Resources    struct {
				Limits   map[corev1.ResourceName]amount `json:"limits"`
				Requests map[corev1.ResourceName]amount `json:"requests"`
			} `json:"resources"`
		} `json:"containers"`
	} `json:"spec"`
}

// ParsePod reads a pod's metadata, and the names and resources of its containers.
func ParsePod(raw []byte) (*corev1.Pod, error) {
	var wire wirePod
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, fmt.Errorf("reading a pod: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: wire.Metadata}
	if own := bytes.TrimSpace(wire.Spec.Resources); len(own) > 0 && !bytes.Equal(own, []byte("null")) {
		pod.Spec.Resources = new(corev1.ResourceRequirements) // which ones does not matter
	}
	for _, c := range wire.Spec.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name:         c.Name,
			ResizePolicy: c.ResizePolicy,
			Resources: corev1.ResourceRequirements{
				Limits: amounts(c.Resources.Limits), Requests: amounts(c.Resources.Requests),
			},
		})
	}
	return pod, nil
}

// amount is a quantity that takes little time to read.
type amount struct{ resource.Quantity }

const (
	// longestAmount is more characters than an API server writes of an amount.
	longestAmount = 40
)

// long finds an exponent of three digits or more: resource.ParseQuantity computes with a
// number of as many digits as the exponent says, and "07E1000000000000" would take hours.
var long = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// UnmarshalJSON implements [json.Unmarshaler]. An API server writes amounts as strings.
func (a *amount) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("amount %.60q: it must be a string", raw)
	}
	if len(text) > longestAmount || long.MatchString(text) {
		return fmt.Errorf("amount %.60q: it must have %d characters at most, two of them in an exponent", text, longestAmount)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("amount %q: %w", text, err)
	}
	a.Quantity = q
	return nil
}

// amounts is a list of resources.
func amounts(wire map[corev1.ResourceName]amount) corev1.ResourceList {
	if wire == nil {
		return nil
	}
	list := make(corev1.ResourceList, len(wire))
	for name, a := range wire {
		list[name] = a.Quantity
	}
	return list
}
