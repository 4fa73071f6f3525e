package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
)

func explainCommand() *cobra.Command {
	var where cluster
	var from stream
	cmd := &cobra.Command{
		Use:   "explain WORKLOAD",
		Short: "The last decisions for a workload: what was observed, decided, clipped and done",
		Long: "The last decisions for a workload: what was observed, decided, clipped and done.\n\n" +
			"The newest ten are in the object's status, which is written when something material changes and otherwise about once\n" +
			"a minute. With --follow, --last, --as-account or --send-token they come from central as they are made, through the\n" +
			"API server's service proxy: you need the right to get services/proxy https:aware-central:link in aware-system (role\n" +
			"aware-decisions). Where the stream cannot be read, the status is shown, and why.",
		Example: "  aware explain deployment/shop -n prod\n" +
			"  aware explain deployment/shop -n prod --follow --as-account prod/viewer",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("explain takes one WORKLOAD, as NAME or KIND/NAME; %d were given",
					len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := from.check(); err != nil {
				return err
			}
			items, err := where.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if from.wanted() {
				config, err := where.flags.ToRESTConfig()
				if err != nil {
					return fmt.Errorf("reading the kubeconfig: %w", err)
				}
				if from.follow {
					done, err := follow(cmd, config, &from, items, where.json)
					if done || err != nil {
						return err
					}
				} else {
					newer(cmd, config, &from, items)
				}
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
	from.register(cmd)
	return cmd
}

// newer replaces the decisions of each object's status by central's. Where that
// cannot be, it says why.
func newer(cmd *cobra.Command, config *rest.Config, from *stream, items []v1alpha1.MultidimPodAutoscaler) {
	for i := range items {
		m := &items[i]
		body, err := from.open(cmd.Context(), config, m.Namespace, m.Name)
		if err == nil {
			var all []v1alpha1.DecisionStatus
			err = read(body, func(d v1alpha1.DecisionStatus) error { all = append(all, d); return nil })
			body.Close()
			if err == nil {
				slices.Reverse(all)
				m.Status.Decisions = all
				continue
			}
		}
		noteStatus(cmd, m, err)
	}
}

// noteStatus says that the decisions are the status', and why.
func noteStatus(cmd *cobra.Command, m *v1alpha1.MultidimPodAutoscaler, why error) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s/%s: the decisions are those of its status, which can be a minute old: %v\n",
		m.Namespace, m.Name, why)
}

// follow prints the decisions on one workload as they are made. done is false when
// the stream cannot be opened.
func follow(
	cmd *cobra.Command, config *rest.Config, from *stream, items []v1alpha1.MultidimPodAutoscaler, asJSON bool,
) (done bool, err error) {
	if len(items) != 1 {
		return false, usage(fmt.Errorf("flag --follow: %d workloads have that name: name one as KIND/NAME, "+
			"without --all-namespaces", len(items)))
	}
	m := &items[0]
	body, err := from.open(cmd.Context(), config, m.Namespace, m.Name)
	if err != nil {
		noteStatus(cmd, m, err)
		return false, nil
	}
	defer body.Close()
	out := cmd.OutOrStdout()
	err = read(body, func(d v1alpha1.DecisionStatus) error {
		if asJSON {
			return json.NewEncoder(out).Encode(d)
		}
		_, err := fmt.Fprintf(out, "%s %s observed %s; decided %s; clipped by %s; %s %s (%s)\n", d.Time.Format("15:04:05"),
			or(d.Container), observed(d), sets(d), or(strings.Join(d.ClippedBy, ",")), d.Effect, or(d.Reason), policy(d))
		return err
	})
	if cmd.Context().Err() != nil {
		return true, nil // its reader has seen enough
	}
	if err == nil {
		err = errors.New("central ended the stream")
	}
	return true, err
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
		fmt.Fprintf(out, "  decided   container %s: %s CPU reserved, %s of memory\n",
			r.Name, cpu(r.Requests), memory(&r.Limits))
	}
	fmt.Fprintf(out, "  resizes   %d by the nodes' agents, %d through the API\n", s.Resizes.Node, s.Resizes.API)
	if s.Policy != nil {
		fmt.Fprintf(out, "  policy    %s (%s)\n", s.Policy.Version, s.Policy.Source)
		if s.Margin != "" {
			fmt.Fprintf(out, "  nodes     rule %s, margin %s\n", or(s.Policy.NodeRule), s.Margin)
		}
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
			or(strings.Join(d.ClippedBy, ",")), d.Effect, or(d.Reason), policy(d))
	}
	return w.Flush()
}

// policy is whose decision it was, and what the rule would have done, where that is something else.
func policy(d v1alpha1.DecisionStatus) string {
	if d.Rule == "" {
		return d.Policy
	}
	return d.Policy + ", where the rule wanted " + d.Rule
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
