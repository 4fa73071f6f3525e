// Package link joins the nodes' agents to central: one stream for each node, reports up and mandates down, over
// connectrpc and TLS. It stands in cmd because it is the only place that sees both sides; each side gives it a small
// interface, and the nouns that travel are those of learner/mdp.
//
// An agent authenticates with its projected service-account token. Central has the token reviewed by the API server, and
// takes a report only for the node that the token is bound to: a stolen token speaks for one node at most.
package link
