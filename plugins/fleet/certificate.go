package fleet

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// SecretName is the secret with the certificate and its key. Only central reads it.
const SecretName = "aware-central-tls"

const (
	lifetime = 365 * 24 * time.Hour // of a serving certificate
	renewal  = 30 * 24 * time.Hour  // how long before its end it is renewed
)

// Certificate is central's serving certificate, signed by its own authority and
// kept in a secret. All instances use the same one: the first instance creates
// the secret.
type Certificate struct {
	Client    kubernetes.Interface
	Namespace string
	Name      string // in the certificate, such as aware-central.aware-system.svc
	Now       func() time.Time

	ensuring sync.Mutex
	current  atomic.Pointer[tls.Certificate]
	ca       atomic.Pointer[[]byte]
}

// CA is the authorities that are trusted for the certificate, in PEM: those that the
// secret had when it was read last; nil before.
func (c *Certificate) CA() []byte {
	if ca := c.ca.Load(); ca != nil {
		return *ca
	}
	return nil
}

// Config is a TLS configuration that serves the current certificate.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := c.current.Load(); cert != nil {
				return cert, nil
			}
			return nil, errors.New("no certificate yet")
		}}
}

// Ensure reads the certificate, and publishes its authority. It makes a new
// certificate when there is none, or when it ends soon. One call works at a time.
func (c *Certificate) Ensure(ctx context.Context) error {
	c.ensuring.Lock()
	defer c.ensuring.Unlock()
	secrets := c.Client.CoreV1().Secrets(c.Namespace)
	secret, err := secrets.Get(ctx, SecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if secret, err = c.issue(nil); err != nil {
			return err
		}
		created, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // another instance was faster: its certificate is used
			created, err = secrets.Get(ctx, SecretName, metav1.GetOptions{})
		}
		if err != nil {
			return fmt.Errorf("creating secret %s/%s: %w", c.Namespace, SecretName, err)
		}
		secret = created
	case err != nil:
		return fmt.Errorf("reading secret %s/%s: %w", c.Namespace, SecretName, err)
	}
	if c.ends(secret).Sub(c.Now()) < renewal {
		renewed, err := c.issue(secret)
		if err != nil {
			return err
		}
		renewed.ResourceVersion = secret.ResourceVersion
		if secret, err = secrets.Update(ctx, renewed, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("renewing secret %s/%s: %w", c.Namespace, SecretName, err)
		}
	}
	cert, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", c.Namespace, SecretName, err)
	}
	if err := c.publish(ctx, secret.Data[api.CAKey]); err != nil {
		return err
	}
	c.current.Store(&cert)
	ca := secret.Data[api.CAKey]
	c.ca.Store(&ca)
	return nil
}

// ends is when the serving certificate of a secret ends; the zero time when it
// cannot be read.
func (c *Certificate) ends(secret *corev1.Secret) time.Time {
	certs, err := certutil.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil || len(certs) == 0 || certs[0].VerifyHostname(c.Name) != nil {
		return time.Time{}
	}
	return certs[0].NotAfter
}

// publish writes the authority into the config map.
func (c *Certificate) publish(ctx context.Context, ca []byte) error {
	maps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: api.CAConfigMap, Namespace: c.Namespace},
		Data:       map[string]string{api.CAKey: string(ca)},
	}
	have, err := maps.Get(ctx, api.CAConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	case err == nil && have.Data[api.CAKey] != string(ca):
		want.ResourceVersion = have.ResourceVersion
		_, err = maps.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publishing the certificate authority in config map %s/%s: %w", c.Namespace,
			api.CAConfigMap, err)
	}
	return nil
}

// issue makes a serving certificate and its own authority. The authority's key
// is not kept: a renewal makes a new authority. The old one is published too
// until it ends, so that agents trust both.
func (c *Certificate) issue(old *corev1.Secret) (*corev1.Secret, error) {
	now := c.Now()
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "aware-central-ca"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(lifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	authorityPEM, err := sign(authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, err
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1),
		Subject:      pkix.Name{CommonName: c.Name},
		DNSNames:     []string{c.Name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	servingPEM, err := sign(serving, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key: %w", err)
	}
	if old != nil {
		authorityPEM = append(authorityPEM, firstCertificate(old.Data[api.CAKey])...)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: SecretName, Namespace: c.Namespace},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			api.CAKey:               authorityPEM,
			corev1.TLSCertKey:       servingPEM,
			corev1.TLSPrivateKeyKey: keyPEM,
		},
	}, nil
}

// sign makes a certificate in PEM.
func sign(cert, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for %s: %w", cert.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), nil
}

// firstCertificate is the newest authority of a bundle.
func firstCertificate(bundle []byte) []byte {
	block, _ := pem.Decode(bundle)
	if block == nil {
		return nil
	}
	return bytes.TrimSpace(pem.EncodeToMemory(block))
}
