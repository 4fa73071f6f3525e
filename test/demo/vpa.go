package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"awarescale.dev/aware/test/cluster/images"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The VerticalPodAutoscaler runs with its own manifests, from the module that its
// programs are built from. Only these flags are changed. They make it react faster: its
// defaults are for days, and the trace lasts minutes.
const (
	vpaModule  = "k8s.io/autoscaler/vertical-pod-autoscaler"
	vpaVersion = "1.8.1"
	vpaService = "vpa-webhook.kube-system.svc"
)

var vpaFlags = map[string][]string{
	"vpa-recommender": {
		"--recommender-interval=10s",            // default 1m
		"--pod-recommendation-min-memory-mb=48", // default 250: more than the application ever needs
		"--confidence-interval-memory=1m",       // default 24h: the bounds narrow within minutes
		"--memory-aggregation-interval=1m",      // default 24h
		"--memory-histogram-decay-half-life=2m", // default 24h
		"--round-memory-bytes=1048576", "--v=2"},
	"vpa-updater": {
		"--updater-interval=10s", // default 1m
		// default 12h: acts on small differences, too
		"--in-recommendation-bounds-eviction-lifetime-threshold=30s",
		"--v=2"},
}

// installVPA installs recommender, updater and admission controller, and
// returns when the webhook is registered.
func (s *stage) installVPA(ctx context.Context) error {
	for _, program := range []string{"vpa-recommender", "vpa-updater", "vpa-admission-controller"} {
		file, err := s.cluster.Binary(program)
		if err != nil {
			return err
		}
		ref := "registry.k8s.io/autoscaling/" + program + ":" + vpaVersion // the name in the manifests
		if err := s.cluster.LoadImage(ctx, ref, map[string]string{"/" + program: file},
			[]string{"/" + program}); err != nil {
			return err
		}
	}
	dir, err := s.vpaManifests(ctx)
	if err != nil {
		return err
	}
	if err := s.vpaCertificates(ctx); err != nil {
		return fmt.Errorf("making the certificates of the VPA's webhook: %w", err)
	}
	if _, err := s.cluster.Kubectl(ctx, "apply", "--server-side", "-k", dir); err != nil {
		return fmt.Errorf("applying %s: %w", dir, err)
	}
	for program := range vpaFlags {
		if err := s.rollout(ctx, "kube-system", "deployment/"+program); err != nil {
			return err
		}
	}
	if err := s.rollout(ctx, "kube-system", "deployment/vpa-admission-controller"); err != nil {
		return err
	}
	return until(ctx, time.Minute, time.Second, "the VPA's webhook to be registered",
		func(ctx context.Context) error {
			_, err := s.clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx,
				"vpa-webhook-config", metav1.GetOptions{})
			return err
		})
}

// uninstallVPA removes the VPA, and the webhook that its admission controller
// registered. Otherwise each new pod would wait for an answer of a missing server.
func (s *stage) uninstallVPA(ctx context.Context) error {
	_, err := s.cluster.Kubectl(ctx, "delete", "-k", filepath.Join(s.options.out, "manifests", "vpa"),
		"--ignore-not-found", "--timeout=60s")
	_, err2 := s.cluster.Kubectl(ctx, "delete", "mutatingwebhookconfiguration", "vpa-webhook-config",
		"--ignore-not-found")
	return errors.Join(err, err2)
}

// vpaManifests copies the module's manifests and adds the flags.
func (s *stage) vpaManifests(ctx context.Context) (string, error) {
	module, err := images.Source(ctx, vpaModule)
	if err != nil {
		return "", err
	}
	from := os.DirFS(filepath.Join(module, "deploy"))
	dir := filepath.Join(s.options.out, "manifests", "vpa")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.CopyFS(filepath.Join(dir, "deploy"), from); err != nil {
		return "", fmt.Errorf("copying the VPA's manifests: %w", err)
	}
	patches := []map[string]any{}
	for program, flags := range vpaFlags {
		patch, err := json.Marshal([]map[string]any{{
			"op":    "add",
			"path":  "/spec/template/spec/containers/0/args",
			"value": flags,
		}})
		if err != nil {
			return "", err
		}
		patches = append(patches, map[string]any{
			"target": map[string]string{"kind": "Deployment", "name": program},
			"patch":  string(patch),
		})
	}
	kustomization, err := json.MarshalIndent(map[string]any{
		"resources": []string{"deploy"},
		"patches":   patches,
	}, "", "  ")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), kustomization, 0o644) // JSON is YAML
}

// vpaCertificates does the work of the VPA's gencerts.sh: it makes an authority, a
// certificate of the webhook's service, and the secret that its Deployment mounts.
func (s *stage) vpaCertificates(ctx context.Context) error {
	year := 365 * 24 * time.Hour
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "vpa_webhook_ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(year),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: vpaService},
		DNSNames:     []string{vpaService},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(),
		authorityKey)
	if err != nil {
		return err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, leafKey.Public(), authorityKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		return err
	}
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{
			Type:  kind,
			Bytes: der,
		})
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "vpa-tls-certs", Namespace: "kube-system"},
		Data: map[string][]byte{
			"caCert.pem": block("CERTIFICATE", authorityDER), "serverCert.pem": block("CERTIFICATE", leafDER),
			"serverKey.pem": block("EC PRIVATE KEY", keyDER),
		},
	}
	secrets := s.clients.CoreV1().Secrets("kube-system")
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // of the slice before
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	return err
}

// awaitHPAVPA returns when both autoscalers have the data to decide on.
func (s *stage) awaitHPAVPA(ctx context.Context, run string) error {
	namespace := namespaceOf(run)
	conditions := map[string]string{"hpa": "ScalingActive", "vpa": "RecommendationProvided"}
	for kind, condition := range conditions {
		err := until(ctx, 90*time.Second, time.Second, "condition "+condition+" of the "+kind,
			func(ctx context.Context) error {
				out, err := s.cluster.Kubectl(ctx, "get", kind, appName, "-n", namespace, "-o",
					"jsonpath={.status.conditions[?(@.type=='"+condition+"')].status} {.status.conditions[?(@.type=='"+condition+"')].message}")
				if err != nil {
					return err
				}
				if len(out) < 4 || string(out[:4]) != "True" {
					return fmt.Errorf("it is %q", out)
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}
