package main

import (
	"fmt"
	"io"
	"strings"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
)

func explainCommand() *cobra.Command {
	var where cluster
	cmd := &cobra.Command{
		Use:     "explain WORKLOAD",
		Short:   "The last decisions for a workload: what was observed, decided, clipped and done",
		Example: "  aware explain deployment/shop -n prod",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("explain takes one WORKLOAD, as NAME or KIND/NAME; %d were given",
					len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			items, err := where.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if where.json {
				return printJSON(cmd.OutOrStdout(), items)
			}
			for _, m := range items {
				if err := explain(cmd.OutOrStdout(), m); err != nil {
					return err
				}
			}
			return nil
		},
	}
	where.register(cmd)
	return cmd
}

// explain prints one workload: its spec, its status, and its decisions, newest
// first.
func explain(out io.Writer, m v1alpha1.MultidimPodAutoscaler) error {
	s := m.Status
	fmt.Fprintf(out, "%s/%s  %s/%s  mode %s\n",
		m.Namespace, m.Name, m.Spec.TargetRef.Kind, m.Spec.TargetRef.Name, m.Spec.Mode)
	fmt.Fprintf(out, "  latency   %s, SLO preservation %s\n", latency(m), or(s.SLOPreservation))
	fmt.Fprintf(out, "  in force  %s replicas of %s CPU and %s memory each, reported by nodes\n",
		replicas(s.Replicas), cpu(s.Effective), memory(s.Effective))
	for _, r := range s.Recommendation {
		fmt.Fprintf(out, "  limits    container %s: %s CPU, %s memory, by the last decision\n",
			r.Name, cpu(&r.Limits), memory(&r.Limits))
	}
	fmt.Fprintf(out, "  resizes   %d by the nodes' agents, %d through the API\n", s.Resizes.Node, s.Resizes.API)
	if s.Policy != nil {
		fmt.Fprintf(out, "  policy    %s (%s)\n", s.Policy.Version, s.Policy.Source)
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(out, "  %-9s %s: %s\n", c.Type, c.Status, c.Message)
	}
	if len(s.Decisions) == 0 {
		_, err := fmt.Fprintln(out, "  Nothing has been decided yet.")
		return err
	}
	fmt.Fprintln(out)
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "TIME\tCONTAINER\tOBSERVED\tDECIDED\tCLIPPED BY\tEFFECT\tREASON\tPOLICY")
	for _, d := range s.Decisions {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			d.Time.Format("15:04:05"), or(d.Container), observed(d), sets(d),
			or(strings.Join(d.ClippedBy, ",")), d.Effect, or(d.Reason), d.Policy)
	}
	return w.Flush()
}

// observed is what a decision was made from.
func observed(d v1alpha1.DecisionStatus) string {
	if len(d.Signals) == 0 {
		return "nothing observed"
	}
	return recommender.Describe(d.Signals)
}

// sets is what a decision sets.
func sets(d v1alpha1.DecisionStatus) string {
	if len(d.Sets) == 0 {
		return "keep"
	}
	return recommender.Describe(d.Sets)
}
