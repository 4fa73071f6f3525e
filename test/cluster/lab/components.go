package lab

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pauseImage  = "awarescale.dev/lab-pause:1"
	metricsUser = "system:metrics-server"
	dnsUser     = "system:coredns"
	criSocket   = "/run/containerd/containerd.sock"
	cniPlugins  = "/usr/lib/cni"
	metricsPort = "4443"

	clusterDomain = "cluster.local"
)

// component is one program that init keeps running. Its binary and its log have its
// name.
type component struct {
	name string
	args []string
	// ready asks the component once whether it can be used; nil: as soon as it runs.
	ready func(context.Context) error
}

func (p plan) etcd() component {
	const clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return component{"etcd", []string{
		// Without fsync: data need not survive a crash of the machine.
		"--data-dir=" + filepath.Join(p.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" +
			peers,
		"--log-level=warn",
	}, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, clients+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s/health: %s", clients, resp.Status)
		}
		return nil
	}}
}

func (p plan) apiServer() component {
	pki := func(file string) string { return filepath.Join(p.pki(), file) }
	return component{"kube-apiserver", []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=6443", "--advertise-address=" + p.Net.Lab.String(),
		"--service-cluster-ip-range=" + p.Net.Services.String(),
		"--client-ca-file=" + pki("ca.crt"),
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP", // node names do not resolve
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + pki("service-accounts.key"),
		"--service-account-key-file=" + pki("service-accounts.key"),
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"), "--proxy-client-key-file=" +
			pki("front-proxy-client.key"),
		"--enable-aggregator-routing=true",
		"--feature-gates=" + p.gates(),
	}, func(ctx context.Context) error {
		clients, err := p.clientset()
		if err != nil {
			return err
		}
		return clients.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}}
}

func (p plan) controllerManager() component {
	kubeconfig := p.kubeconfigOf("kube-controller-manager")
	return component{
		name: "kube-controller-manager",
		args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1", "--leader-elect=false",
			// It sends many requests at its start. At the default 20 a second a node is
			// usable after 5 s only.
			"--kube-api-qps=500", "--kube-api-burst=1000",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + filepath.Join(p.pki(), "service-accounts.key"),
			"--root-ca-file=" + filepath.Join(p.pki(), "ca.crt"),
			"--cluster-signing-cert-file=" + filepath.Join(p.pki(), "ca.crt"),
			"--cluster-signing-key-file=" + filepath.Join(p.pki(), "ca.key"),
			"--allocate-node-cidrs=true", "--cluster-cidr=" + p.Net.Pods.String(),
			"--service-cluster-ip-range=" + p.Net.Services.String(),
			"--flex-volume-plugin-dir=/var/lib/kubelet/volumeplugins",
			"--feature-gates=" + p.gates(),
		},
	}
}

func (p plan) scheduler() component {
	kubeconfig := p.kubeconfigOf("kube-scheduler")
	return component{
		name: "kube-scheduler",
		args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1", "--leader-elect=false",
			"--feature-gates=" + p.gates(),
		},
	}
}

func (p plan) containerd() component {
	return component{"containerd", []string{"--config=" + p.config("containerd.toml")},
		func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", criSocket)
			if err != nil {
				return err
			}
			return conn.Close()
		}}
}

func (p plan) kubelet() component {
	args := []string{
		"--config=" + p.config("kubelet.json"), "--kubeconfig=" + p.kubeconfigOf("kubelet"),
		"--hostname-override=" + p.Node.Name, "--node-ip=" + p.Node.Address.String(),
	}
	labels := ""
	for name, value := range p.Node.Labels {
		labels += "," + name + "=" + value
	}
	if labels != "" {
		args = append(args, "--node-labels="+labels[1:])
	}
	return component{name: "kubelet", args: args}
}

func (p plan) kubeProxy() component {
	return component{name: "kube-proxy", args: []string{"--config=" + p.config("kube-proxy.json")}}
}

func (p plan) metricsServer() component {
	kubeconfig := p.kubeconfigOf("metrics-server")
	return component{
		name: "metrics-server",
		args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--secure-port=" + metricsPort,
			"--tls-cert-file=" + filepath.Join(p.pki(), "metrics-server.crt"),
			"--tls-private-key-file=" + filepath.Join(p.pki(), "metrics-server.key"),
			"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=" +
				filepath.Join(p.pki(), "ca.crt"),
			// the least value it accepts, and one that must be below it
			"--metric-resolution=10s", "--kubelet-request-timeout=5s",
		},
	}
}

func (p plan) coreDNS() component {
	return component{name: "coredns", args: []string{"-conf=" + p.config("Corefile")}}
}

//go:embed manifests/*.yaml
var manifests embed.FS

// addons are the objects that metrics-server and CoreDNS need: their rights, and the
// services of two programs that do not run in pods.
func (p plan) addons() ([]byte, error) {
	ca, err := os.ReadFile(filepath.Join(p.pki(), "ca.crt"))
	if err != nil {
		return nil, err
	}
	all, err := template.New("").Option("missingkey=error").ParseFS(manifests, "manifests/*.yaml")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, t := range all.Templates() {
		b.WriteString("---\n")
		if err := t.Execute(&b, map[string]string{
			"Address": p.Net.Lab.String(), "CA": base64.StdEncoding.EncodeToString(ca),
			"MetricsUser": metricsUser, "MetricsPort": metricsPort, "DNSUser": dnsUser,
			"DNSAddress": p.Net.dns().String(),
		}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// object is a JSON object in a configuration file.
type object = map[string]any

// writeConfigs writes the configuration files of the lab's components.
func (p plan) writeConfigs() error {
	if err := os.WriteFile(p.config("Corefile"), []byte(p.corefile()), 0o600); err != nil {
		return err
	}
	snapshotter, err := snapshotterFor(p.Dir)
	if err != nil {
		return err
	}
	return p.writeNodeConfigs(filepath.Join(p.Dir, "config"), snapshotter)
}

// writeNodeConfigs writes the configuration files of the node's components into a folder.
func (p plan) writeNodeConfigs(dir, snapshotter string) error {
	for file, content := range map[string]object{
		"kubelet.json":        p.kubeletConfig(),
		"kube-proxy.json":     p.proxyConfig(),
		"cni/10-lab.conflist": p.cniConfig(),
	} {
		data, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "containerd.toml"), []byte(p.containerdConfig(snapshotter)), 0o600)
}

func (p plan) kubeletConfig() object {
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true},
			"x509": object{"clientCAFile": filepath.Join(p.pki(), "ca.crt")},
		},
		"authorization":            object{"mode": "Webhook"},
		"tlsCertFile":              filepath.Join(p.pki(), "kubelet.crt"),
		"tlsPrivateKeyFile":        filepath.Join(p.pki(), "kubelet.key"),
		"containerRuntimeEndpoint": "unix://" + criSocket,
		"cgroupDriver":             p.Node.CgroupDriver, "cgroupRoot": p.Node.CgroupRoot,
		"enforceNodeAllocatable": []string{"pods"},
		"failCgroupV1":           false, "failSwapOn": false,
		// The kubelet must not write this machine's kernel settings. The lab shows it the
		// values that it requires, see knobs. A virtual machine has its own kernel.
		"protectKernelDefaults": !p.Node.Machine,
		"oomScoreAdj":           0, // a negative one may not be permitted
		"clusterDNS":            []string{p.Net.dns().String()}, "clusterDomain": clusterDomain,
		"resolvConf": "", // pods reach nothing outside of this machine
		// The host's disk may be nearly full. That must not evict pods.
		"evictionHard":                object{"memory.available": "100Mi"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"volumePluginDir": "/var/lib/kubelet/volumeplugins",
		"maxPods":         p.MaxPods,
		"featureGates":    p.FeatureGates,
	}
}

func (p plan) proxyConfig() object {
	return object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"clientConnection": object{"kubeconfig": p.kubeconfigOf("kube-proxy")},
		"mode":             "nftables", "clusterCIDR": p.Net.Pods.String(), "hostnameOverride": p.Node.Name,
		// The size of the connection table is shared by the whole machine.
		"conntrack":          object{"maxPerCore": 0, "min": 0},
		"oomScoreAdj":        0,
		"metricsBindAddress": "127.0.0.1:10249", "healthzBindAddress": "127.0.0.1:10256",
		"featureGates": p.FeatureGates,
	}
}

func (p plan) cniConfig() object {
	// One routed link per pod. With a bridge, the answers of a service on the same node
	// would need br_netfilter to return on the same path.
	return object{
		"cniVersion": "1.0.0", "name": "lab",
		"plugins": []object{{
			"type": "ptp", "mtu": 1500,
			"ipam": object{"type": "host-local", "ranges": [][]object{{{"subnet": p.Node.Pods.String()}}},
				"routes": []object{{"dst": "0.0.0.0/0"}}},
		}},
	}
}

func (p plan) corefile() string {
	return fmt.Sprintf(`.:53 {
	errors
	kubernetes %s in-addr.arpa ip6.arpa {
		kubeconfig %s
	}
	# There is no other name server.
	template ANY ANY {
		rcode NXDOMAIN
	}
}
`, clusterDomain, p.kubeconfigOf("coredns"))
}

func (p plan) containerdConfig(snapshotter string) string {
	return fmt.Sprintf(`version = 3

[plugins.'io.containerd.cri.v1.images']
  snapshotter = %[1]q
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[2]q
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = %[7]q

[plugins.'io.containerd.cri.v1.runtime']
  # A negative oom_score_adj may not be permitted.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[3]q]
    conf_dir = %[4]q
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %[5]q
      SystemdCgroup = %[6]t

# The default is not in the lab's private folders.
[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'
`, snapshotter, pauseImage, cniPlugins, p.config("cni"), p.Binaries["runc"],
		p.Node.CgroupDriver == systemd, p.config("registries"))
}

// snapshotterFor chooses how images are unpacked: overlayfs, unless the state folder is
// on an overlayfs itself, which cannot hold upper folders.
func snapshotterFor(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", fmt.Errorf("asking for the file system of %s: %w", dir, err)
	}
	if s.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native", nil
	}
	return "overlayfs", nil
}

// within limits the time of each call of f.
func within(ctx context.Context, d time.Duration, f func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return f(ctx)
	}
}
