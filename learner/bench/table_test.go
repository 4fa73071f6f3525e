package bench_test

import (
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench"
)

func TestTheDocumentSaysWhatEachRuleReached(t *testing.T) {
	half := 0.5
	rows := []bench.Row{
		{Trace: "constant", Policy: "static", Cores: 4, P99MS: 20, Fidelity: "fluid", FloorCores: 2},
		{Trace: "constant", Policy: "mine", Cores: 3, P99MS: 40, Fidelity: "requests", FloorCores: 2, ToFloor: &half},
		{Trace: "bursty", Policy: "mine", Cores: 1, P99MS: 80, Fidelity: "requests", Lost: 0.01, Ratio: 0.4, Violates: true},
	}
	for i := range rows {
		rows[i].App, rows[i].SLOMS = "shop", 50
	}
	bench.Rank(rows)
	var out strings.Builder
	if err := bench.Markdown(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### shop (SLO 50 ms)\n",
		"**constant** (floor 2.00 cores)\n",
		"| static | 4.00 | 0.0 | 20 | 0.0 % | 0.00 % | fluid | 2 | 1 | |\n",
		"| mine | 3.00 | 0.0 | 40 | 0.0 % | 0.00 % | requests | 1 | 1 | 50 % |\n",
		"**bursty**\n",
		"| mine | 1.00 | 0.0 | 80 | 40.0 % | 1.00 % | requests | violates | 1 | |\n",
	} {
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("%d times %q in\n%s", n, want, out.String())
		}
	}
}
