// Package lab runs a real Kubernetes on this machine, for tests: etcd, the control
// plane, containerd, a kubelet, kube-proxy, metrics-server and CoreDNS, built from
// Go modules and started without a registry of images, a virtual machine or a
// container engine.
//
// # How it works
//
// [Up] builds missing binaries into a cache (ten minutes the first time on two
// cores). It starts one process, the lab's init, in new PID, mount, network and
// UTS namespaces. Init is PID 1 there: it starts the components as its
// children, restarts them if they end, reaps orphans and stops everything on
// SIGTERM. Up returns when the node is Ready and a pod can be created.
//
//	host                           │ the lab's namespaces
//	                               │
//	test ── lab.Up ── awl0 ════════╪══ eth0 ── init (PID 1)
//	        10.88.0.1/30           │          ├ etcd, kube-apiserver, ...
//	        routes to pods and     │          ├ kubelet, containerd ── pods
//	        services via awl0      │          └ kube-proxy, metrics-server, coredns
//
// Nearly everything that a cluster leaves on a machine is a process, a mount, a
// link or a packet filter rule. Here these are in namespaces, and end with the
// last process in them. That process ends with init, even after SIGKILL.
// With [Config.Nodes] 2 there is a second node: a virtual machine (package machine), whose
// processor is emulated. Its kernel has cgroup v2, whatever this machine has.
//
//	the lab's namespaces                      │ the machine
//	                                          │
//	eth0 ── init                              │ eth0 ── systemd, or our init
//	awm0 ═══╪════════ qemu ═══════════════════╪══╝         ├ containerd, kubelet ── pods
//	10.88.n.5/30                              │ .6         ├ kube-proxy
//	route to its pods via .6                  │            └ shell
//
// qemu is a component of the lab, and ends with it. The programs of the node are the
// lab's, with libraries of this host. The shell is how the host runs programs there
// ([Node.Command]) and brings it images. What it is good for is in hack/adr, 19.
//
// Outside are only the control groups below /aware-lab-NAME, the host's end of
// one veth pair (which ends with the lab's network), and the state folder. [Cluster.Down]
// removes them. If Down was not called, the next Up of the same name removes
// them. A lab with [Config.BindParent] removes them itself when the process
// that made it is gone. [CheckClean] lists what is left.
//
// # What a test may rely on
//
// The host reaches the API server, pods of all nodes, and services at their own addresses. The
// runtime's socket, /var/lib/kubelet and /var/log/pods are at their usual paths inside
// the lab, private to it, so manifests with those host paths work unchanged. RBAC, node
// authorization and the aggregation layer are on. Service names resolve in pods. /tmp,
// /usr and the rest of the file system are the host's. On a second node the paths are the same, and
// nothing is the host's.
//
// # What is missing
//
// There is no image registry (make an image with [Cluster.LoadImage], and set
// imagePullPolicy: Never; or serve a registry on the host, and name it to
// [Cluster.TrustRegistry]), no hostPort, no storage class, and no network from a
// pod to other machines, nor their names. On the host, service names do not
// resolve.
package lab
