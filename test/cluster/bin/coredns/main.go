// Command coredns is CoreDNS with the plugins that answer for a cluster's
// services, and say of all else that it does not exist, and with its metrics; its own
// main brings along the clients of every cloud.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/coremain"
)

func init() { dnsserver.Directives = []string{"prometheus", "errors", "kubernetes", "template"} }

func main() { coremain.Run() }
