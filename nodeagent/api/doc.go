// Package api is what a node's agent and central say to each other: reports go up, grants come down. It holds the nouns
// of that conversation and their wire form ([awarescale.dev/aware/nodeagent/api/linkv1]). It has no client and no server:
// nodeagent/link dials, plugins/fleet serves. Plugins may import it, as they may import k8s.io/cri-api: it is a leaf.
package api
