// Package web serves what a process of AWARE says of itself: to everybody whether it
// is well, because the kubelet asks without a name; and its metrics to whoever the API
// server lets read them. It does so as Kubernetes' own components do: over TLS, with a
// certificate that the process signs itself, a token review for whose the request is,
// and a subject access review for whether that user may get the path.
package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// headersIn is how long the headers of a request may take, and idle how long a
	// connection may stay without one.
	headersIn = 10 * time.Second
	idle      = time.Minute
	// maxHeaders is the size of the largest headers; a token has about 1 kB.
	maxHeaders = 16 << 10
)

// Pages is what a process says of itself.
type Pages struct {
	Metrics http.Handler
	Live    func() error // nil when the process is well
	Ready   func() error // nil when it does its work
	Readers *Readers     // who may read the metrics
}

// Handler is the pages as HTTP.
func (p Pages) Handler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/metrics", p.Readers.Guard(p.Metrics))
	mux.HandleFunc("/livez", check(p.Live))
	mux.HandleFunc("/healthz", check(p.Live))
	mux.HandleFunc("/readyz", check(p.Ready))
	return mux
}

// check says ok, or what is wrong.
func check(is func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := is(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// Serve serves over TLS until the context ends. The listener is used once.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	defer l.Close()
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           h,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}},
		ReadHeaderTimeout: headersIn,
		IdleTimeout:       idle,
		MaxHeaderBytes:    maxHeaders,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	return server.ServeTLS(l, "", "")
}

// selfSigned is a certificate that nobody has to trust: the kubelet does not look at
// it, and who reads metrics is authenticated by a token. Its key is of an elliptic curve: the
// kubelet opens a connection for each probe, and RSA would take a tenth of the node agent's CPU.
func selfSigned() (tls.Certificate, error) {
	host, err := os.Hostname()
	if err != nil {
		klog.ErrorS(err, "Reading the host's name for the certificate")
		host = "localhost"
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: host}, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate for %s: %w", host, err)
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}, nil
}
