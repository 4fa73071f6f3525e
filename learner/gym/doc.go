// Package gym offers an autoscaled workload, simulated or real, as an
// environment with the interface of Gymnasium: init, reset, step. A client can
// use it over HTTP with Python's standard library only (example/autoscale.py),
// or over gRPC.
//
// # The story
//
// A [awarescale.dev/aware/learner/env/workload.Environment] controls one
// service of an application. Its Spaces describe the knobs and the observable
// signals. Reset starts an episode. Step executes an Action, waits for one time
// step, and returns the new State and the Reward.
// [awarescale.dev/aware/learner/env/workload.OfWorld] creates an environment
// from a simulated world, in virtual time.
// [awarescale.dev/aware/learner/env/workload.Live] creates one from any Sensor
// and Actuator, in real time. A policy that learned in one can run in the other
// without a change.
//
// A session with the option all_services controls every service of a simulated
// application at once, by a [awarescale.dev/aware/learner/env/workload.Joint]:
// messages name the services, all are acted upon, time passes once, and all are
// observed. With the option encoded, states are also the vectors that AWARE's
// own learners get.
//
// A [Server] keeps environments in sessions and serves them as gymv1.Gym: gRPC,
// gRPC-Web and HTTP with JSON on one port. Each session has its own
// environment. The number of sessions is limited, and an idle session ends.
//
// gymv1.Policy is the other direction: a client's program decides and AWARE asks
// it (example/policy.py). cmd/aware makes a contestant of the bench of it. The
// messages of both are read and written here.
//
// # Semantics
//
//  1. The reward of a step is mdp.Objective.Judge of the state after the step.
//     If a signal that it needs was not observed, there is no reward; it is not
//     zero. The reward over all services is their mean, and there is none when
//     one of theirs is unknown. Training uses the same rewards.
//  2. An episode is truncated after 100 steps (the default, from AWARE) and
//     never terminated. After that, only Reset continues.
//  3. With the same seed and actions a simulated episode is the same, bit for
//     bit. It is also the same as the episode of an mdp.Loop on the same world.
//     The first state is one step after the start of the world, so that it has
//     measurements. An episode over all services is the same as the one of a
//     loop for each service.
//  4. Reset does not restore the state of a real workload. The new episode
//     starts with the current state.
//  5. An action outside the action space is rejected and has no effect, on no
//     service. With the clip option it is moved into the space instead.
//  6. A step that fails counts, because its time has passed. Its transition is
//     lost, as in an mdp.Loop. The client can continue.
//
// # What it leaves to others
//
// Server.Open decides which workloads can be opened; cmd/aware implements it.
// The package does not learn. It has no authentication: every client that can
// reach the port can act.
package gym
