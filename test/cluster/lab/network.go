package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// network is the set of addresses of one lab. Labs on one machine differ by slot.
type network struct {
	Slot     int
	Link     string       // name of the host's end of the veth pair
	Host     netip.Addr   // the host's address on the link
	Lab      netip.Addr   // the lab's: the node's address and the API server's
	Pods     netip.Prefix // cluster CIDR; each node owns a /24, in the order in which they register
	Services netip.Prefix
}

// slots is how many labs a machine has addresses for.
const slots = 16

// slot gives the n-th lab its addresses: 10.88.n.0/30 for the link, 10.88.n.4/30 for the one
// to the second node, and a /16 each for pods and services: 10.89 and 10.90 for the first lab, 10.91 and 10.92 for the second.
func slot(n int) network {
	b := byte(n)
	return network{
		Slot:     n,
		Link:     "awl" + strconv.Itoa(n),
		Host:     netip.AddrFrom4([4]byte{10, 88, b, 1}),
		Lab:      netip.AddrFrom4([4]byte{10, 88, b, 2}),
		Pods:     netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 89 + 2*b, 0, 0}), 16),
		Services: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 90 + 2*b, 0, 0}), 16),
	}
}

func (n network) link() netip.Prefix { return netip.PrefixFrom(n.Host, 30).Masked() }

// nodePods is the range of the lab's node, the first /24 that the controller manager
// hands out.
func (n network) nodePods() netip.Prefix { return netip.PrefixFrom(n.Pods.Addr(), 24) }

// secondPods is the range of the second node.
func (n network) secondPods() netip.Prefix {
	a := n.Pods.Addr().As4()
	a[2]++
	return netip.PrefixFrom(netip.AddrFrom4(a), 24)
}

// secondLink is the network of the lab and its second node.
func (n network) secondLink() netip.Prefix {
	a := n.Host.As4()
	a[3] = 4
	return netip.PrefixFrom(netip.AddrFrom4(a), 30)
}

// secondGateway is the lab's address there.
func (n network) secondGateway() netip.Addr { return n.secondLink().Addr().Next() }

// second is the second node's address.
func (n network) second() netip.Addr { return n.secondGateway().Next() }

// gateway is the pods' first hop.
func (n network) gateway() netip.Addr { return n.Pods.Addr().Next() }

// apiService is the address of the service kubernetes.default.
func (n network) apiService() netip.Addr { return n.Services.Addr().Next() }

// dns is the address of the service kube-system/kube-dns, the tenth by convention.
func (n network) dns() netip.Addr {
	a := n.Services.Addr().As4()
	a[3] = 10
	return netip.AddrFrom4(a)
}

// clashes reports whether one of the machine's routes leads to an address of n.
func (n network) clashes(routes []netip.Prefix) bool {
	for _, r := range routes {
		if r.Bits() > 0 && (r.Overlaps(n.link()) || r.Overlaps(n.secondLink()) || r.Overlaps(n.Pods) || r.Overlaps(n.Services)) {
			return true
		}
	}
	return false
}

// parseRoutes reads `ip -json route`:
// [{"dst":"default"},{"dst":"10.0.0.0/8"},{"dst":"10.1.2.3"}].
func parseRoutes(data []byte) ([]netip.Prefix, error) {
	var rows []struct{ Dst string }
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, fmt.Errorf("reading the machine's routes: %w", err)
	}
	var routes []netip.Prefix
	for _, row := range rows {
		if p, err := netip.ParsePrefix(row.Dst); err == nil {
			routes = append(routes, p)
		} else if a, err := netip.ParseAddr(row.Dst); err == nil {
			routes = append(routes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return routes, nil
}

// claim takes the first slot that is free, by making its veth pair: of two labs that
// start at the same time only one succeeds. The link's alias names its lab.
func claim(ctx context.Context, owner string) (network, error) {
	out, err := exec.CommandContext(ctx, "ip", "-json", "-4", "route", "show").Output()
	if err != nil {
		return network{}, fmt.Errorf("listing the machine's routes: %w", err)
	}
	routes, err := parseRoutes(out)
	if err != nil {
		return network{}, err
	}
	for i := range slots {
		n := slot(i)
		if _, err := os.Stat("/sys/class/net/" + n.Link); err == nil || n.clashes(routes) {
			continue
		}
		if err := ip(ctx, "link", "add", n.Link, "type", "veth", "peer", "name", n.Link+"p"); err != nil {
			if strings.Contains(err.Error(), "File exists") {
				continue
			}
			return network{}, err
		}
		return n, ip(ctx, "link", "set", n.Link, "alias", owner)
	}
	return network{}, fmt.Errorf(
		"each of the %d address ranges from 10.88.0.0/30, 10.89.0.0/16, 10.90.0.0/16 on "+
			"clashes with a route or link of this machine: %v",
		slots,
		routes,
	)
}

// connect gives the lab whose init is pid the other end of the veth pair, and the host
// an address and its routes to pods and services.
func (n network) connect(ctx context.Context, pid int) error {
	for _, args := range [][]string{
		{"link", "set", n.Link + "p", "netns", strconv.Itoa(pid), "name", "eth0"},
		{"address", "add", netip.PrefixFrom(n.Host, 30).String(), "dev", n.Link},
		{"link", "set", n.Link, "up"},
		{"route", "add", n.Pods.String(), "via", n.Lab.String()},
		{"route", "add", n.Services.String(), "via", n.Lab.String()},
		{"route", "add", n.secondLink().String(), "via", n.Lab.String()},
	} {
		if err := ip(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// setUp configures the lab's end, inside its network namespace.
func (n network) setUp(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", netip.PrefixFrom(n.Lab, 30).String(), "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", n.Host.String()},
	} {
		if err := ip(ctx, args...); err != nil {
			return err
		}
	}
	return forward()
}

// tap is the lab's end of the cable to its second node.
const tap = "awm0"

// plugIn makes that end, inside the lab's network namespace. The emulator has the other one.
func (n network) plugIn(ctx context.Context) error {
	for _, args := range [][]string{
		{"tuntap", "add", "dev", tap, "mode", "tap"},
		{"address", "add", netip.PrefixFrom(n.secondGateway(), n.secondLink().Bits()).String(), "dev", tap},
		{"link", "set", tap, "up"},
		{"route", "add", n.secondPods().String(), "via", n.second().String()},
	} {
		if err := ip(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// setUpSecond configures the second node's end, in the machine.
func (n network) setUpSecond(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", netip.PrefixFrom(n.second(), n.secondLink().Bits()).String(), "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", n.secondGateway().String()},
	} {
		if err := ip(ctx, args...); err != nil {
			return err
		}
	}
	return forward()
}

// forward lets packets of pods pass.
func forward() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) }

// removeLinks removes the remaining veth pairs of the owner. A pair also ends some time
// after its lab's network.
func removeLinks(ctx context.Context, owner string) error {
	links, err := filepath.Glob("/sys/class/net/awl*")
	if err != nil {
		return err
	}
	for _, link := range links {
		alias, _ := os.ReadFile(filepath.Join(link, "ifalias"))
		if strings.TrimSpace(string(alias)) != owner {
			continue
		}
		if err := ip(ctx, "link", "delete", filepath.Base(link)); err != nil && !noDevice(err) {
			return err
		}
	}
	return nil
}

// noDevice reports whether ip found no such device. It says so itself when it looks up a
// name in vain; the kernel says so where the device ends between that and the change.
func noDevice(err error) bool {
	return strings.Contains(err.Error(), "Cannot find device") || strings.Contains(err.Error(), "No such device")
}

func ip(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
