// Package trajectory is experience at rest: the transitions of workloads, kept so that learners can ask for them later.
//
// # The story
//
// A running workload makes an [mdp.Transition] each step. Whoever runs it calls [Store.Append] with the logical time of the
// step: which episode, and which step of it. Append only puts the transition into a buffer in memory, so a slow disk or a
// network that is down does not hold up the loop that scales. What waits is written in batches, in order: when a batch is full,
// when the caller's ticker ticks, or when somebody calls [Store.Flush]. Learners read what was written: the best episodes for
// the meta-learner ([Store.Top]), recent rewards for the lifecycle ([Store.Rewards]), transitions for offline training
// ([Store.Transitions]).
//
// An episode is complete when one of its steps is terminated or truncated. Totals are compared among complete episodes only: that of
// an episode which is still running, or was cut by a crash, is a part of something unknown. A step that was never appended (a
// [mdp.Loop] makes no transition across a failure) is a gap, and stays one.
//
// There are two stores behind the one interface, and [awarescale.dev/aware/learner/experience/trajectory/trajectorytest] is what both pass:
//
//   - [SQLite] is a file, for one machine. Each transition is a row with its logical time, its reward, and a compact body
//     (see encoding.go).
//   - [Influx] is an InfluxDB of 1.x, 2.x or 3.x, for many. Each transition is a point whose timestamp is its logical time
//     (see influx.go).
//
// Both key a transition by (workload, episode, step): appended again, it replaces what was there. So a batch that may or may not have
// arrived is simply sent once more.
//
// # Unknown stays unknown
//
// Of a State only the signals in Observed are stored, of an Action only the knobs in Sets; the others come back as zero, which
// is what mdp says they are. Everything stored comes back to the last bit, times to the nanosecond and in UTC.
//
// # What may be lost
//
// A process that dies loses what waits in its buffer, and nothing that was flushed. A machine that loses power may also lose
// the last transactions of an SQLite store (synchronous=NORMAL), but not the file. When the disk is full or InfluxDB is down,
// what waits keeps waiting. Once [Buffering.Limit] transitions wait, Append refuses further ones with an error that says so and
// counts them in [Figures]; nothing that waits is dropped to make room.
//
// # What this package leaves to others
//
// When an episode begins and ends, what a reward is, and what to do with experience: the learners decide. Time too: there is no
// clock in here, the ticker and the time of [SQLite.Prune] are arguments. Only the pauses between tries and the time limits of
// requests are real. An InfluxDB's databases, retention and users belong to its operator.
package trajectory
