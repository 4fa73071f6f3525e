package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster is the cluster that a command reads. kubectl's own flags select it.
type cluster struct {
	flags         *genericclioptions.ConfigFlags
	allNamespaces bool
	json          bool
}

func (c *cluster) register(cmd *cobra.Command) {
	c.flags = genericclioptions.NewConfigFlags(true)
	c.flags.AddFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Look in all namespaces.")
	cmd.Flags().BoolVar(&c.json, "json", false, "Print JSON.")
}

// find lists the objects of the workload, or all when it is empty. A workload is
// given as NAME or KIND/NAME.
func (c *cluster) find(ctx context.Context, workload string) ([]v1alpha1.MultidimPodAutoscaler, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if c.allNamespaces {
		namespace = ""
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the API server %s: %w", config.Host, err)
	}
	return list(ctx, reader, namespace, workload)
}

func list(ctx context.Context, reader client.Reader,
	namespace, workload string) ([]v1alpha1.MultidimPodAutoscaler, error) {
	var all v1alpha1.MultidimPodAutoscalerList
	if err := reader.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("the cluster has no MultidimPodAutoscaler: "+
				"AWARE is not installed there (kubectl apply -k manifests/default): %w", err)
		}
		return nil, fmt.Errorf("listing MultidimPodAutoscalers: %w", err)
	}
	if workload == "" {
		return all.Items, nil
	}
	found := slices.DeleteFunc(all.Items,
		func(m v1alpha1.MultidimPodAutoscaler) bool { return !names(m, workload) })
	if len(found) == 0 {
		where := "namespace " + namespace
		if namespace == "" {
			where = "any namespace"
		}
		return nil, fmt.Errorf("no MultidimPodAutoscaler of workload %q in %s: is its pod template labelled %s=true?",
			workload, where, v1alpha1.ManagedLabel)
	}
	return found, nil
}

// names reports whether a workload, given as NAME or KIND/NAME, is an object's
// target.
func names(m v1alpha1.MultidimPodAutoscaler, workload string) bool {
	kind, name, ok := strings.Cut(workload, "/")
	if !ok {
		return m.Name == workload || m.Spec.TargetRef.Name == workload
	}
	short := map[string]string{"deploy": "Deployment", "sts": "StatefulSet", "rs": "ReplicaSet"}
	full, known := short[strings.ToLower(kind)]
	if !known {
		full = strings.TrimSuffix(kind, "s")
	}
	return m.Spec.TargetRef.Name == name && strings.EqualFold(full, m.Spec.TargetRef.Kind)
}
