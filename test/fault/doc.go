// Package fault has one test for each fault that an attacker, an outage or bad luck can
// cause, named by what it shows. The node's tests run the real agent in virtual time, on
// a directory that looks like a cgroup tree and an honest container runtime.
//
// What needs a real kubelet and kernel is in test/fault/lab.
//
// go test -short runs the part that make test runs; make fault runs all.
package fault
