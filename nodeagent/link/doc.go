// Package link is a node agent's end of the link to central: one stream, reports up and grants down, over connectrpc and
// TLS. plugins/fleet is the other end.
//
// The agent authenticates with its projected service-account token, which central has reviewed by the API server. While
// there is no link the agent works on within the grants it has.
package link
