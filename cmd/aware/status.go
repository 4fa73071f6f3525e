package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

func statusCommand() *cobra.Command {
	var where cluster
	var check bool
	cmd := &cobra.Command{
		Use:     "status [WORKLOAD]",
		Short:   "The state of workloads: mode, replicas, sizes, SLO, and problems",
		Example: "  aware status\n  aware status deployment/shop -n prod\n  aware status -A --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			items, err := where.find(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if where.json {
				err = printJSON(cmd.OutOrStdout(), items)
			} else {
				err = printStatus(cmd.OutOrStdout(), items, time.Now())
			}
			if err != nil {
				return err
			}
			if found := problems(items); check && len(found) > 0 {
				return &exitError{3, fmt.Errorf("%d of %d workloads are not well", len(found), len(items))}
			}
			return nil
		},
	}
	where.register(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "Exit with 3 when a workload is not well.")
	return cmd
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printStatus prints one line for each workload, and the problems under the table.
func printStatus(out io.Writer, items []v1alpha1.MultidimPodAutoscaler, now time.Time) error {
	if len(items) == 0 {
		_, err := fmt.Fprintf(out, "No workload has opted in. Label a pod template %s=true.\n",
			v1alpha1.ManagedLabel)
		return err
	}
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "NAMESPACE\tTARGET\tMODE\tSTAGE\tREPLICAS\tCPU\tMEM\tLATENCY\tSLO\tRESIZES\tREWARD\tDECIDED")
	for _, m := range items {
		s := m.Status
		fmt.Fprintf(w, "%s\t%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d+%d\t%s\t%s\n",
			m.Namespace, m.Spec.TargetRef.Kind, m.Spec.TargetRef.Name,
			m.Spec.Mode, or(s.Stage), replicas(s.Replicas), cpu(s.Effective), memory(s.Effective), latency(m),
			or(s.SLOPreservation),
			s.Resizes.Node, s.Resizes.API, reward(s.Reward), decided(s, now))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	for _, p := range problems(items) {
		fmt.Fprintln(out, p)
	}
	return nil
}

func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func replicas(r v1alpha1.ReplicaStatus) string {
	if r.Current == r.Desired {
		return fmt.Sprint(r.Current)
	}
	return fmt.Sprintf("%d->%d", r.Current, r.Desired)
}

func cpu(s *v1alpha1.Size) string {
	if s == nil || s.CPU == nil {
		return "unknown"
	}
	return s.CPU.String()
}

func memory(s *v1alpha1.Size) string {
	if s == nil || s.Memory == nil {
		return "unknown"
	}
	return s.Memory.String()
}

func latency(m v1alpha1.MultidimPodAutoscaler) string {
	if m.Spec.SLO == nil || m.Spec.SLO.Latency == nil {
		return "-"
	}
	want := m.Spec.SLO.Latency
	got := "unknown"
	if m.Status.Latency != nil {
		got = m.Status.Latency.Round(100 * time.Microsecond).String()
	}
	return fmt.Sprintf("%s of %s (p%d)", got, want.Threshold.Duration, want.Percentile)
}

func reward(r *v1alpha1.RewardStatus) string {
	if r == nil {
		return "-"
	}
	return r.Mean
}

func decided(s v1alpha1.MultidimPodAutoscalerStatus, now time.Time) string {
	if len(s.Decisions) == 0 {
		return "never"
	}
	return duration.HumanDuration(now.Sub(s.Decisions[0].Time.Time)) + " ago"
}

// problems lists the conditions that show a problem, for each workload.
func problems(items []v1alpha1.MultidimPodAutoscaler) []string {
	var out []string
	for _, m := range items {
		for _, kind := range []string{v1alpha1.Ready, v1alpha1.SLOObserved} {
			if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil &&
				c.Status == metav1.ConditionFalse {
				out = append(out,
					fmt.Sprintf("%s/%s: %s: %s: %s", m.Namespace, m.Name, kind, c.Reason, c.Message))
			}
		}
		for _, kind := range []string{v1alpha1.ConflictDetected, v1alpha1.ResizeDeferred, v1alpha1.OOMLoop} {
			if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil &&
				c.Status == metav1.ConditionTrue {
				out = append(out,
					fmt.Sprintf("%s/%s: %s: %s: %s", m.Namespace, m.Name, kind, c.Reason, c.Message))
			}
		}
	}
	return out
}
