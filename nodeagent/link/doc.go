// Package link is a node agent's end of the link to central: one stream over connectrpc
// and TLS, with reports up and grants down. plugins/fleet is the other end.
//
// The agent authenticates with its projected service-account token. Central lets the
// API server review it. While there is no link the agent goes on within its grants.
package link
