// Package lab runs a real Kubernetes on this machine, for tests: etcd, the control plane,
// containerd, a kubelet, kube-proxy, metrics-server and CoreDNS, built from Go modules and
// started without a registry of images, a virtual machine or a container engine.
//
// # The story
//
// [Up] builds the binaries it lacks into a cache (ten minutes for the first time on two
// cores, nothing afterwards) and starts one process, the lab's init, in PID, mount,
// network and UTS namespaces of its own. Init is PID 1 in there: it starts the
// components as its children, starts them again if they die, reaps orphans and stops
// everything on SIGTERM. Up returns once the node is Ready and a pod can be made.
//
//	host                           │ the lab's namespaces
//	                               │
//	test ── lab.Up ── awl0 ════════╪══ eth0 ── init (PID 1)
//	        10.88.0.1/30           │          ├ etcd, kube-apiserver, ...
//	        routes to pods and     │          ├ kubelet, containerd ── pods
//	        services via awl0      │          └ kube-proxy, metrics-server, coredns
//
// Nearly everything a cluster leaves on a machine is a process, a mount, a link or a
// packet filter rule, so it lives in a namespace and goes with the last process in it;
// and that one goes when init does, even by SIGKILL. Outside are only the control groups
// below /aware-lab-NAME, the host's end of one veth pair (which goes with the lab's
// network), and the state folder. [Cluster.Down] removes them, the next Up of the same
// name does when Down was never called, and a lab with [Config.BindParent] does it by
// itself when the process that made it is gone. [CheckClean] looks for what is left.
//
// # What a test may rely on
//
// The host reaches the API server, pods and services at their own addresses. The
// runtime's socket, /var/lib/kubelet and /var/log/pods are at their usual paths inside
// the lab, private to it, so manifests with those host paths work unchanged. RBAC, node
// authorization and the aggregation layer are on; service names resolve in pods. /tmp, /usr and the rest of the file
// system are the host's.
//
// # What is missing
//
// There is no image registry (make an image with [Cluster.LoadImage], and set
// imagePullPolicy: Never), no hostPort, no storage class, and no way from a pod to beyond
// this machine, nor a name for anything there. On the host, service names do not resolve.
package lab
