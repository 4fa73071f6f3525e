package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// lifetime of a lab's certificates; a lab is meant to live for minutes.
const lifetime = 365 * 24 * time.Hour

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// pair is a certificate and its key, both in PEM.
type pair struct {
	cert []byte
	key  []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		return nil, fmt.Errorf("making the authority %q: %w", name, err)
	}
	return &authority{c, key}, nil
}

// issue signs a certificate for a user (common name) in groups (organizations). With
// hosts, which are names and addresses, it is valid for a server too.
func (a *authority) issue(user string, groups []string, hosts ...string) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return pair{}, err
	}
	template := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %q: %w", user, err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, err
	}
	certPEM, err := cert.EncodeCertificates(signed)
	return pair{certPEM, keyPEM}, err
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// write writes the pair to path.crt and path.key.
func (p pair) write(path string) error {
	if err := os.WriteFile(path+".crt", p.cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(path+".key", p.key, 0o600)
}

// pair returns the authority's own certificate and key.
func (a *authority) pair() (pair, error) {
	key, err := keyutil.MarshalPrivateKeyToPEM(a.key)
	if err != nil {
		return pair{}, err
	}
	c, err := cert.EncodeCertificates(a.cert)
	return pair{c, key}, err
}

// readAuthority reads what pair wrote.
func readAuthority(path string) (*authority, error) {
	certs, err := cert.CertsFromFile(path + ".crt")
	if err != nil {
		return nil, err
	}
	key, err := keyutil.PrivateKeyFromFile(path + ".key")
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key %s.key cannot sign", path)
	}
	return &authority{certs[0], signer}, nil
}

// kubeconfig returns a kubeconfig with which a user of the groups speaks to the server.
func (a *authority) kubeconfig(server, user string, groups ...string) ([]byte, error) {
	p, err := a.issue(user, groups)
	if err != nil {
		return nil, err
	}
	ca, err := a.pair()
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"lab": {
			Server:                   server,
			CertificateAuthorityData: ca.cert,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			ClientCertificateData: p.cert,
			ClientKeyData:         p.key,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"lab": {Cluster: "lab", AuthInfo: user}},
		CurrentContext: "lab",
	})
}

// writePKI makes every certificate and kubeconfig of the lab.
func (p plan) writePKI() error {
	cluster, err := newAuthority("lab")
	if err != nil {
		return err
	}
	front, err := newAuthority("lab-front-proxy")
	if err != nil {
		return err
	}
	for name, a := range map[string]*authority{"ca": cluster, "front-proxy-ca": front} {
		own, err := a.pair()
		if err != nil {
			return err
		}
		if err := own.write(filepath.Join(p.pki(), name)); err != nil {
			return err
		}
	}

	node := p.Net.Lab.String()
	type leaf struct {
		file   string
		by     *authority
		user   string
		groups []string
		hosts  []string
	}
	for _, l := range []leaf{
		{"apiserver", cluster, "kube-apiserver", nil,
			[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc." + clusterDomain, "localhost", "127.0.0.1", node,
				p.Net.gateway().String(), p.Net.apiService().String()}},
		{"apiserver-kubelet-client", cluster, "kube-apiserver-kubelet-client", []string{"system:masters"}, nil},
		{"front-proxy-client", front, "front-proxy-client", nil, nil},
		{"kubelet", cluster, "system:node:" + p.Node.Name, []string{"system:nodes"},
			[]string{p.Node.Name, "localhost", "127.0.0.1", node}},
		{"metrics-server", cluster, metricsUser, nil,
			[]string{"metrics-server", "metrics-server.kube-system", "metrics-server.kube-system.svc", node}},
		{"service-accounts", cluster, "service-accounts", nil, nil}, // only the key matters
	} {
		issued, err := l.by.issue(l.user, l.groups, l.hosts...)
		if err != nil {
			return err
		}
		if err := issued.write(filepath.Join(p.pki(), l.file)); err != nil {
			return err
		}
	}

	type user struct {
		file   string
		name   string
		groups []string
	}
	for _, u := range []user{
		{p.kubeconfig(), "lab-admin", []string{"system:masters"}},
		{p.kubeconfigOf("kube-controller-manager"), "system:kube-controller-manager", nil},
		{p.kubeconfigOf("kube-scheduler"), "system:kube-scheduler", nil},
		{p.kubeconfigOf("kube-proxy"), "system:kube-proxy", nil},
		{p.kubeconfigOf("kubelet"), "system:node:" + p.Node.Name, []string{"system:nodes"}},
		{p.kubeconfigOf("metrics-server"), metricsUser, nil},
		{p.kubeconfigOf("coredns"), dnsUser, nil},
	} {
		data, err := cluster.kubeconfig(p.server(), u.name, u.groups...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(u.file, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
