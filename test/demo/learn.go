package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"awarescale.dev/aware/test/apps/load"
)

// stateOnNode is a folder of the lab's node, in which what central has learned outlives central's pod. An admin has a
// PersistentVolume in its place.
const stateOnNode = "/var/lib/aware-learned"

// overlay changes manifests/default so. Its verb is the folder of these, from the overlay's own.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - %s
patches:
  - target:
      kind: Deployment
      name: aware-autoscaler
    patch: |-
      - op: replace
        path: /spec/template/spec/volumes/0
        value:
          name: state
          hostPath:
            path: ` + stateOnNode + `
            type: Directory
`

// makeState makes the folder on the node.
func (s *stage) makeState(ctx context.Context) error {
	const user = "65532" // of the autoscaler's container
	install := s.cluster.Command(ctx, "install", "-d", "-o", user, "-g", user, "-m", "700", stateOnNode)
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("making %s on the lab's node: %w: %s", stateOnNode, err, out)
	}
	return nil
}

// keeping makes the folder on the node, and the overlay. It returns the overlay's folder.
func (s *stage) keeping(ctx context.Context, manifests string) (string, error) {
	if err := s.makeState(ctx); err != nil {
		return "", err
	}
	dir := filepath.Join(s.options.out, "manifests", learned)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	from, err := filepath.Rel(dir, manifests)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, overlay, from), 0o644)
}

// learn lets central learn the application under the load of the slices, one after the other, for as long as --learn says, and
// keeps what it has learned in learned.tar. With --learned it is that of another demo, in place of the load.
func (s *stage) learn(ctx context.Context) (err error) {
	const run = learned
	if from := s.options.learned; from != "" {
		return s.takeOver(ctx, from)
	}
	row := s.screen.begin("learning for " + run)
	defer func() {
		if err != nil && ctx.Err() == nil {
			row.phase("failed")
			s.diagnose(context.WithoutCancel(ctx), run)
		}
	}()
	row.phase("installing")
	if err := s.install(ctx, run); err != nil {
		return err
	}
	if err := s.deploy(ctx, run, peakMilli); err != nil {
		return err
	}
	if err := s.await(ctx, run); err != nil {
		return err
	}
	url, err := s.target(ctx, run)
	if err != nil {
		return err
	}
	trace, err := s.options.shape()
	if err != nil {
		return err
	}
	once, err := trace.Scale(s.options.timeScale, s.fit.RPS)
	if err != nil {
		return err
	}
	const seeds = 2000 // none of a slice, nor of a warm-up
	end := time.Now().Add(s.options.learn)
	for i := uint64(0); time.Now().Before(end); i++ {
		row.phase(fmt.Sprintf("%v are left", max(0, time.Until(end)).Round(time.Second)))
		result, err := load.Run(ctx, s.load(url, once, seeds+i), nil)
		if err != nil {
			return err
		}
		if i%10 == 0 {
			s.screen.say("%s: %s, %.2f %% over the SLO", run, s.policy(ctx, run), 100*result.SLOViolationRatio)
		}
	}
	row.phase("removing")
	if err := s.uninstallAWARE(ctx, run); err != nil {
		return err
	}
	if err := s.remove(ctx, run); err != nil {
		return err
	}
	if err := s.keepLearned(ctx, filepath.Join(s.options.out, "learned.tar")); err != nil {
		return err
	}
	row.phase("done")
	return nil
}

// keepLearned copies what central has learned from the node to a file.
func (s *stage) keepLearned(ctx context.Context, to string) error {
	var wrong bytes.Buffer
	pack := s.cluster.Command(ctx, "tar", "-C", stateOnNode, "-c", ".")
	pack.Stderr = &wrong
	out, err := pack.Output()
	if err != nil {
		return fmt.Errorf("reading %s on the lab's node: %w: %s", stateOnNode, err, &wrong)
	}
	return os.WriteFile(to, out, 0o600)
}

// takeOver copies what central has learned in another demo from its file to the node.
func (s *stage) takeOver(ctx context.Context, from string) error {
	file, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("flag --learned: %w", err)
	}
	defer file.Close()
	if err := s.makeState(ctx); err != nil {
		return err
	}
	unpack := s.cluster.Command(ctx, "tar", "-C", stateOnNode, "-x")
	unpack.Stdin = file
	if out, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("flag --learned: unpacking %s on the lab's node: %w: %s", from, err, out)
	}
	return nil
}

// policy is AWARE's policy for a run's application now, and the stage of its agent, or why it is not known: what was measured
// does not get lost for that.
func (s *stage) policy(ctx context.Context, run string) string {
	object, err := s.awareObject(ctx, run)
	if err != nil {
		return "not known: " + err.Error()
	}
	version := "none"
	if p := object.Status.Policy; p != nil {
		version = p.Version
	}
	return fmt.Sprintf("policy %s, stage %s", version, object.Status.Stage)
}
