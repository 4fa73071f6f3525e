package admission

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operation is one operation of a JSON patch (RFC 6902). A patch names only what it
// changes: a newer API server's fields, which this program does not know, stay.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch is a verdict as a JSON patch of a pod; nil when nothing changes. There is no
// operation in it that can fail on that pod: one that fails would fail the pod.
func (v Verdict) Patch(pod *corev1.Pod, now time.Time) ([]byte, error) {
	var all []operation
	for _, c := range v.Containers {
		path := "/spec/containers/" + strconv.Itoa(c.Index) + "/resources/"
		all = append(all, changes(path+"limits/", c.Before.Limits, c.After.Limits)...)
		all = append(all, changes(path+"requests/", c.Before.Requests, c.After.Requests)...)
	}
	if len(all) == 0 {
		return nil, nil
	}
	entry, err := updater.Mark(now, names(v.Containers))
	if err != nil {
		return nil, err
	}
	// The list is there when the API server keeps managed fields, which it always does.
	if len(pod.ManagedFields) == 0 {
		all = append(all, operation{"add", "/metadata/managedFields", []metav1.ManagedFieldsEntry{entry}})
	} else {
		all = append(all, operation{"add", "/metadata/managedFields/-", entry})
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("writing the patch of a new pod: %w", err)
	}
	return body, nil
}

// changes is the operations for the amounts that differ. None is added that was not there.
func changes(path string, before, after corev1.ResourceList) []operation {
	var all []operation
	for _, name := range updater.Resizable {
		was, there := before[name]
		is := after[name]
		if there && was.Cmp(is) != 0 {
			all = append(all, operation{"replace", path + string(name), is})
		}
	}
	return all
}

// names is which resources of which containers are set.
func names(all []Container) map[string][]corev1.ResourceName {
	set := map[string][]corev1.ResourceName{}
	for _, c := range all {
		for _, name := range updater.Resizable {
			limit, request := c.Before.Limits[name], c.Before.Requests[name]
			if limit.Cmp(c.After.Limits[name]) != 0 || request.Cmp(c.After.Requests[name]) != 0 {
				set[c.Name] = append(set[c.Name], name)
			}
		}
	}
	return set
}
