package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Component is one program of the control plane or the node, as init sees it.
type Component struct {
	Name     string    `json:"name"`
	State    string    `json:"state"` // starting, running, restarting
	Since    time.Time `json:"since"` // when its present process started
	Restarts int       `json:"restarts"`
}

// Pod is the status of a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Phase     string `json:"phase"`
	Address   string `json:"address,omitempty"`
}

// Status describes a running lab.
type Status struct {
	Name       string      `json:"name"`
	Version    string      `json:"version"` // of Kubernetes
	Uptime     string      `json:"uptime"`
	Server     string      `json:"server"`
	Kubeconfig string      `json:"kubeconfig"`
	StateDir   string      `json:"stateDir"`
	Init       int         `json:"init"` // its process id, on the host
	Node       string      `json:"node"`
	Ready      bool        `json:"ready"`
	Components []Component `json:"components"`
	Pods       []Pod       `json:"pods"`
}

// Status is the lab's status. When the API server does not answer, it returns an error,
// and the rest of the status is still valid.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	p := c.plan
	s := Status{
		Name:       p.Name,
		Version:    p.Version,
		Uptime:     time.Since(p.Created).Round(time.Second).String(),
		Server:     p.server(),
		Kubeconfig: p.kubeconfig(),
		StateDir:   p.Dir,
		Init:       p.Init.PID,
		Node:       p.Node,
	}
	file := filepath.Join(p.Dir, "components.json")
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &s.Components)
	}
	if err != nil {
		return s, fmt.Errorf("reading the components' states from %s: %w", file, err)
	}
	clients, err := kubernetes.NewForConfig(c.rest)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	node, err := clients.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	if err != nil {
		return s, fmt.Errorf("asking for node %s: %w", p.Node, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			s.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	pods, err := clients.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, fmt.Errorf("asking for the pods: %w", err)
	}
	for _, pod := range pods.Items {
		s.Pods = append(s.Pods, Pod{pod.Namespace, pod.Name, string(pod.Status.Phase), pod.Status.PodIP})
	}
	return s, nil
}
