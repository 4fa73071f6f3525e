// Package api is the messages between a node's agent and central: reports go up, grants
// come down. It has their types and their wire form
// ([awarescale.dev/aware/nodeagent/api/linkv1]). It has no client and no server:
// nodeagent/link dials, and plugins/fleet serves. Plugins may import it, as they may
// import k8s.io/cri-api, because it is a leaf.
package api
