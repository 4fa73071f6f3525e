package optin

import (
	"testing"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
)

// Annotations set the rule of the nodes and its budgets, and not the algorithm, which its owner or the API server wrote.
func TestMergedKeepsWhatAnnotationsCannotSet(t *testing.T) {
	demand := v1alpha1.Learner{Rule: "demand", Budget: "0.5%"}
	for name, c := range map[string]struct{ now, want, merged *v1alpha1.Learner }{
		"nothing":       {nil, nil, nil},
		"a rule is set": {nil, &demand, &demand},
		"beside its default": {
			&v1alpha1.Learner{Algorithm: "none"}, &demand, &v1alpha1.Learner{Algorithm: "none", Rule: "demand", Budget: "0.5%"},
		},
		"the rule is taken back": {
			&v1alpha1.Learner{Algorithm: "none", Rule: "demand"}, nil, &v1alpha1.Learner{Algorithm: "none"},
		},
		"what is learned stays": {
			&v1alpha1.Learner{Algorithm: "bcq", KeepOfflineWhileRetraining: true, Rule: "demand", Windows: "3%"}, &demand,
			&v1alpha1.Learner{Algorithm: "bcq", KeepOfflineWhileRetraining: true, Rule: "demand", Budget: "0.5%"},
		},
		"nothing is left": {&v1alpha1.Learner{Rule: "demand"}, nil, nil},
	} {
		var want *v1alpha1.Learner
		if c.want != nil {
			want = new(*c.want)
		}
		type spec = v1alpha1.MultidimPodAutoscalerSpec
		got := merged(spec{Learner: c.now}, spec{Learner: want}).Learner
		if (got == nil) != (c.merged == nil) || got != nil && *got != *c.merged {
			t.Errorf("%s: %+v, want %+v", name, got, c.merged)
		}
	}
}
