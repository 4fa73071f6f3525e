// Package margins learns the margins of an application's services for the demand policy
// (package demand): how many deviations each service's limit is above its demand.
//
// # The story
//
// A core more for one service takes more late requests away than a core more for another one: one is
// called by every request and waits for nobody, another one is called by few. With the best margins a
// core buys the same everywhere. So each [Learner.Round] lowers one service's margin after the other
// by a fixed step, in worlds that are otherwise the same to the last random number, and takes two
// figures: the tail that appears, and the cores that become free, and takes the rounds before into
// account. The margin moves by the logarithm of their ratio to the mean ratio of all services. The
// result is kept if the same tail costs fewer cores; otherwise the next steps are smaller.
//
// The tail is the mean logarithm of the shares of requests above 0.65, 0.8, 1 and 1.25 times the SLO: the share above the
// SLO itself, in a world of ten minutes, is a few hundred requests.
//
// Each round has new worlds: the cell's warm-up trace from a random place, at a random mean rate and
// speed, with noise of its own, and services whose work differs from what the application says
// ([Random]). Nothing of a trace that is judged is in them. The common level of all margins is found
// for each world by itself, so that the share of late requests is the same in all: it is what the
// error budget does in a run.
//
// # What is taken of it
//
// The policy as it is deployed has an error budget for requests and one for windows, and a level that they move. Where
// windows bind before requests do, margins that were learned at a share of late requests do not help: so [HeldOut] judges
// parts of them, and levels, in hours of other worlds, and only what saves cores there by more than chance explains is taken.
// Of the three applications that come with aware it was a half in social-network (2.6 % fewer cores), a common level in
// hotel-reservation (0.4 %), and nothing in train-ticket.
//
// # Services of which nothing is known
//
// [Common] tries one margin for all services of all applications, in an hour of each of AWARE's published ones that begins with
// the policy's life. The error budget moves the level of all services anyway; what a common margin spares is the way to there.
//
// A [Survey] predicts one margin for each workload instead: the one that suits those that are most like it, by what tells how
// alike two workloads are (aware train predicted-margins takes the meta-learner's embeddings).
//
// # What it leaves to others
//
// Running a world is the caller's [Judge]; [InCell] is one of the bench. The learner is pure, and its State is all that there
// is of it: a learner that goes on from a State does what it would have done.
package margins
