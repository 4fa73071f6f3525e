package fleet

import (
	"errors"
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

// Cluster is what the API server says of nodes and pods.
type Cluster interface {
	// Runs reports whether the pod was placed on the node and has that container.
	Runs(node string, c api.ContainerRef) bool
	// Capacity is what a node has; ok is false for a node that is not known.
	Capacity(node string) (has mdp.Size, ok bool)
	// Room is what a node has for managed containers: what can be allocated to pods,
	// less what other pods have requested. ok is false for a node that is not known.
	Room(node string) (room mdp.Size, ok bool)
}

// admit is the part of a report that its node may say: of containers that the API
// server has placed on it, with values that they can have. The error says what was
// left out; what was known of it before is forgotten with it, or it would pass for
// new. A node that is compromised, or wrong, changes nothing of another one. It may ask for
// at most what it has by the API server's word.
func admit(c Cluster, r api.Report) (api.Report, error) {
	has, ok := c.Capacity(r.Node)
	if !ok {
		return api.Report{}, fmt.Errorf("node %q is not known to the API server", r.Node)
	}
	var left []error
	may := make([]api.Summary, 0, len(r.Containers))
	for _, s := range r.Containers {
		err := s.Check(has)
		if err == nil && !c.Runs(r.Node, s.Container) {
			err = errors.New("it is not on this node by the API server")
		}
		if err != nil {
			left = append(left, fmt.Errorf("container %.160q: %w", s.Container, err))
			r.Gone = append(r.Gone, s.Container)
			continue
		}
		// A container uses at most its node, whatever the API allows it.
		s.Bounds.CPU.Min = min(s.Bounds.CPU.Min, has.CPU)
		s.Bounds.CPU.Max = min(s.Bounds.CPU.Max, has.CPU)
		s.Bounds.Memory.Min = min(s.Bounds.Memory.Min, has.Memory)
		s.Bounds.Memory.Max = min(s.Bounds.Memory.Max, has.Memory)
		may = append(may, s)
	}
	r.Containers = may
	if r.Account != nil {
		r.Account = within(c, r.Node, *r.Account)
	}
	return r, errors.Join(left...)
}

// within is an account that asks for at most what the node has; nil while that is not known.
func within(c Cluster, node string, a api.Account) *api.Account {
	room, ok := c.Room(node)
	if !ok {
		return nil
	}
	a.Asked.CPU = min(a.Asked.CPU, room.CPU)
	a.Asked.Memory = min(a.Asked.Memory, room.Memory)
	return &a
}
