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

// NodeStatus is the status of a node.
type NodeStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Ready   bool   `json:"ready"`
}

// Status describes a running lab.
type Status struct {
	Name       string       `json:"name"`
	Version    string       `json:"version"` // of Kubernetes
	Uptime     string       `json:"uptime"`
	Server     string       `json:"server"`
	Kubeconfig string       `json:"kubeconfig"`
	StateDir   string       `json:"stateDir"`
	Init       int          `json:"init"`  // its process id, on the host
	Node       string       `json:"node"`  // the first one
	Ready      bool         `json:"ready"` // all nodes are
	Nodes      []NodeStatus `json:"nodes"`
	Components []Component  `json:"components"` // of the control plane and the first node
	Pods       []Pod        `json:"pods"`
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
		Node:       p.Node.Name,
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
	s.Ready = true
	for _, n := range p.nodes() {
		now, err := clients.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			s.Ready = false
			return s, fmt.Errorf("asking for node %s: %w", n.Name, err)
		}
		one := NodeStatus{Name: n.Name, Address: n.Address.String()}
		for _, condition := range now.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				one.Ready = condition.Status == corev1.ConditionTrue
			}
		}
		s.Ready = s.Ready && one.Ready
		s.Nodes = append(s.Nodes, one)
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
