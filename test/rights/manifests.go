package rights

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Manifests is the roles and bindings of a kustomization.
type Manifests struct {
	ClusterRoles        []rbacv1.ClusterRole
	Roles               []rbacv1.Role
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	RoleBindings        []rbacv1.RoleBinding
	// Text is the documents that test/api applies: these, and what they need.
	Text string
}

// Read builds a kustomization.
func Read(folder string) (*Manifests, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", folder, err)
	}
	m := new(Manifests)
	for _, o := range objects.Resources() {
		text, err := o.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", folder, o.CurId(), err)
		}
		switch o.GetKind() {
		case "ClusterRole":
			err = add(&m.ClusterRoles, text)
		case "Role":
			err = add(&m.Roles, text)
		case "ClusterRoleBinding":
			err = add(&m.ClusterRoleBindings, text)
		case "RoleBinding":
			err = add(&m.RoleBindings, text)
		case "Namespace", "ServiceAccount":
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", folder, o.CurId(), err)
		}
		m.Text += "---\n" + string(text)
	}
	return m, nil
}

// add reads an object.
func add[T any](to *[]T, text []byte) error {
	var one T
	if err := yaml.UnmarshalStrict(text, &one); err != nil {
		return err
	}
	*to = append(*to, one)
	return nil
}

// All is each single thing that the manifests allow. A wildcard, a role that is not
// there, and a subject that is not a service account of ours are errors.
func (m *Manifests) All() ([]One, error) {
	var all []One
	bound := map[string]bool{}
	grant := func(binding, kind, role string, own bool, subjects []rbacv1.Subject) error {
		bound[kind+"/"+role] = true
		for _, s := range subjects {
			if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != Namespace {
				return fmt.Errorf("binding %s: %s %s/%s is not an account of ours", binding, s.Kind, s.Namespace, s.Name)
			}
			if strings.HasPrefix(role, "system:") && !own {
				all = append(all, One{Who: s.Name, Role: role})
				continue
			}
			rules, ok := m.rules(kind, role)
			if !ok {
				return fmt.Errorf("binding %s: there is no %s %s", binding, kind, role)
			}
			more, err := expand(s.Name, own, rules)
			if err != nil {
				return fmt.Errorf("%s %s: %w", kind, role, err)
			}
			all = append(all, more...)
		}
		return nil
	}
	for _, b := range m.ClusterRoleBindings {
		if err := grant(b.Name, b.RoleRef.Kind, b.RoleRef.Name, false, b.Subjects); err != nil {
			return nil, err
		}
	}
	for _, b := range m.RoleBindings {
		if b.Namespace != Namespace {
			return nil, fmt.Errorf("binding %s is in namespace %q", b.Name, b.Namespace)
		}
		if err := grant(b.Name, b.RoleRef.Kind, b.RoleRef.Name, true, b.Subjects); err != nil {
			return nil, err
		}
	}
	for _, r := range m.ClusterRoles { // those for an admin to bind
		if bound["ClusterRole/"+r.Name] {
			continue
		}
		more, err := expand(r.Name, false, r.Rules)
		if err != nil {
			return nil, fmt.Errorf("ClusterRole %s: %w", r.Name, err)
		}
		all = append(all, more...)
	}
	for _, r := range m.Roles {
		if bound["Role/"+r.Name] {
			continue
		}
		more, err := expand(r.Name, true, r.Rules)
		if err != nil {
			return nil, fmt.Errorf("Role %s: %w", r.Name, err)
		}
		all = append(all, more...)
	}
	return all, nil
}

// rules is the rules of a role.
func (m *Manifests) rules(kind, name string) ([]rbacv1.PolicyRule, bool) {
	for _, r := range m.ClusterRoles {
		if kind == "ClusterRole" && r.Name == name {
			return r.Rules, true
		}
	}
	for _, r := range m.Roles {
		if kind == "Role" && r.Name == name {
			return r.Rules, true
		}
	}
	return nil, false
}

// expand is each single thing that rules allow.
func expand(who string, own bool, rules []rbacv1.PolicyRule) ([]One, error) {
	var all []One
	for _, r := range rules {
		for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
			for _, s := range list {
				if strings.Contains(s, "*") {
					return nil, fmt.Errorf("rule %v: it has a wildcard", r)
				}
			}
		}
		for _, verb := range r.Verbs {
			for _, url := range r.NonResourceURLs {
				all = append(all, One{Who: who, Own: own, Resource: url, Verb: verb})
			}
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, name := range names(r.ResourceNames) {
						all = append(all, One{Who: who, Own: own, Group: group, Resource: resource, Name: name, Verb: verb})
					}
				}
			}
		}
	}
	return all, nil
}
