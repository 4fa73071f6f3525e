package env_test

import (
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/mdp"
)

// world has three choices and episodes of two steps: choice 2 is legal in the
// first step only, choice 0 only after it, and 2 is carried out as 1. The first
// step's reward is not known.
func world() *envtest.World {
	return &envtest.World{
		Choices: 3,
		Limit:   2,
		Pay:     func(step int, action float64) (float64, bool) { return 10*float64(step) + action, step > 0 },
		Execute: func(_ int, action float64) float64 { return min(action, 1) },
		Allow: func(step, choice int) bool {
			return choice == 1 || choice == 2 && step == 0 || choice == 0 && step > 0
		},
	}
}

func vector(t *testing.T, envs ...env.Env) *env.Vector {
	t.Helper()
	v, err := env.NewVector(1, envs...)
	if err == nil {
		err = v.Reset()
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestRowsCarryMasksAndExecutedActionsAndUnknownRewards(t *testing.T) {
	v := vector(t, envtest.Workload{World: world()}, envtest.Workload{World: world()})
	equal(t, "first mask", v.Legal, []bool{false, true, true, false, true, true})

	if err := v.StepAll([]float64{2, 1}); err != nil {
		t.Fatal(err)
	}
	equal(t, "executed", v.Executed, []float64{1, 1})
	equal(t, "effects", v.Effects, []mdp.Effect{mdp.Refused, mdp.Applied})
	equal(t, "rewards", v.Rewards, []float64{0, 0})
	equal(t, "known", v.RewardKnown, []bool{false, false})
	equal(t, "mask", v.Legal, []bool{true, true, false, true, true, false})
	equal(t, "final mask", v.FinalLegal, v.Legal)

	// This step ends both episodes: the mask at the end is that of the state
	// that ended, and the next mask that of the new episode.
	if err := v.StepAll([]float64{0, 1}); err != nil {
		t.Fatal(err)
	}
	equal(t, "rewards", v.Rewards, []float64{10, 11})
	equal(t, "known", v.RewardKnown, []bool{true, true})
	equal(t, "truncated", v.Truncated, []bool{true, true})
	equal(t, "final", v.Final, []float64{1, 1})
	equal(t, "final mask", v.FinalLegal, []bool{true, true, false, true, true, false})
	equal(t, "observations", v.Observations, []float64{0, 0})
	equal(t, "mask of the new episode", v.Legal, []bool{false, true, true, false, true, true})
}

func TestAnIllegalChoiceIsRefusedBeforeAnythingIsCarriedOut(t *testing.T) {
	v := vector(t, envtest.Masked{World: world()}, envtest.Masked{World: world()})
	before, err := v.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	err = v.StepAll([]float64{1, 0})
	if err == nil || !strings.Contains(err.Error(), "environment 1: action 0 is not legal now") {
		t.Errorf("an illegal choice: %v", err)
	}
	if after, _ := v.MarshalBinary(); !slices.Equal(before, after) {
		t.Error("environment 0 was stepped although the choice of environment 1 is illegal")
	}
}

func TestWithoutAMaskerThereIsNoMask(t *testing.T) {
	v := vector(t, world())
	if v.Legal != nil || v.FinalLegal != nil {
		t.Errorf("masks %v and %v, want none", v.Legal, v.FinalLegal)
	}
	if err := v.StepAll([]float64{2}); err != nil {
		t.Fatal(err)
	}
	equal(t, "executed", v.Executed, []float64{2}) // World itself is no Executor
}

// Environments may differ in what they can tell: without a mask all is legal.
func TestAMaskIsAllTrueWhereOnlyTheOtherEnvironmentHasOne(t *testing.T) {
	v := vector(t, world(), envtest.Masked{World: world()})
	equal(t, "mask", v.Legal, []bool{true, true, true, false, true, true})
}

func TestAnEnvironmentInWhichNothingIsLegalIsNamed(t *testing.T) {
	w := world()
	w.Allow = func(step, _ int) bool { return step == 0 }
	v := vector(t, envtest.Masked{World: w})
	if err := v.StepAll([]float64{1}); err == nil || !strings.Contains(err.Error(), "none of 3 choices is legal") {
		t.Errorf("nothing is legal after the first step: %v", err)
	}
}

func TestAMaskerWithContinuousActionsIsRefused(t *testing.T) {
	w := world()
	w.Choices = 0
	if _, err := env.NewVector(1, envtest.Masked{World: w}); err == nil || !strings.Contains(err.Error(), "continuous") {
		t.Errorf("a mask of continuous actions: %v", err)
	}
}

func TestARestoredVectorHasItsMask(t *testing.T) {
	v, w := vector(t, envtest.Masked{World: world()}), vector(t, envtest.Masked{World: world()})
	if err := v.StepAll([]float64{1}); err != nil {
		t.Fatal(err)
	}
	saved, err := v.MarshalBinary()
	if err == nil {
		err = w.UnmarshalBinary(saved)
	}
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "mask", w.Legal, []bool{true, true, false})
}
