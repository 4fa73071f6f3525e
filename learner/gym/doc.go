// Package gym offers an autoscaled workload, simulated or real, as an environment in the manner of Gymnasium: init, reset,
// step. A researcher drives it over HTTP with nothing but Python's standard library (example/autoscale.py), or over gRPC.
//
// # The story
//
// An [Environment] controls one service of an application: [Spaces] says which knobs it has and what can be seen of it;
// Reset begins an episode; Step carries an Action out, lets one step of time pass, and gives the State that it led to with
// its Reward. [OfWorld] makes one of a simulated world, in which time passes at once, and [Live] of any Sensor and Actuator,
// between which it really waits. A policy that learned in one can be tried in the other without a change.
//
// A [Server] keeps such environments in sessions and serves them as gymv1.Gym: gRPC, gRPC-Web and HTTP with JSON on one port.
// Each session has an environment of its own; there are at most so many, and one that nobody uses ends.
//
// # Semantics
//
//  1. The reward of a step is mdp.Objective.Judge of the state after it. When a signal that it needs was not observed there is
//     no reward; it is not zero.
//  2. An episode is truncated after 100 steps (AWARE's, by default) and never terminated. Then only Reset goes on.
//  3. With the same seed and actions a simulated episode is the same, bit for bit, and it is the one that an mdp.Loop on the same
//     world would have had. The first state is one step after the world's beginning, so that there is something to see.
//  4. Reset of a real workload does not turn time back: the new episode begins with what is in force.
//  5. An action outside of the action space is refused, and nothing happens; by an option it is moved into the space instead.
//  6. A step that fails half-way counts, for its time has passed; the transition across it is lost, as in an mdp.Loop. The
//     client may go on.
//
// # What it leaves to others
//
// What may be opened, and of which world it is: the server's Open, which is cmd/aware's. It learns nothing. There is no
// authentication: who reaches the port may act.
package gym
