// Package trajectory stores experience: the transitions of workloads, for
// learners that read them later.
//
// # The story
//
// A running workload produces an [mdp.Transition] in each step. The caller
// passes it to [Store.Append] with its logical time: the episode, and the step
// in this episode. Append only adds the transition to a buffer in memory, so a
// slow disk or a broken network does not block the scaling loop. The buffer is
// written in batches, in order: when a batch is full, when the caller's ticker
// ticks, or when [Store.Flush] is called. Learners read stored transitions: the
// best episodes for the meta-learner ([Store.Top]), recent rewards for the
// lifecycle ([Store.Rewards]), and transitions for offline training
// ([Store.Transitions]).
//
// An episode is complete when one of its steps is terminated or truncated.
// Totals are compared only among complete episodes, because the total of a
// running or crashed episode is only a part of an unknown value. A step that
// was never appended is a gap, and stays a gap. (An [mdp.Loop] produces no
// transition across a failure.)
//
// There are two implementations of the interface. Both pass the tests in
// [awarescale.dev/aware/learner/experience/trajectory/trajectorytest].
//
//   - [SQLite] is a file, for one machine. Each transition is a row with its
//     logical time, its reward, and a compact body (see encoding.go).
//   - [Influx] is an InfluxDB of version 1.x, 2.x or 3.x, for many machines.
//     Each transition is a point, and its timestamp is the logical time (see
//     influx.go).
//
// The key of a transition is (workload, episode, step). A transition with the
// same key replaces the old one. A batch for which the result of the write is
// unknown is therefore sent again.
//
// # Unknown stays unknown
//
// Of a State only the signals in Observed are stored, of an Action only the
// knobs in Sets. The others are zero when they are read, as mdp specifies. All
// stored values are read back exactly: numbers to the last bit, times to the
// nanosecond and in UTC.
//
// # What can be lost
//
// A process that is killed loses its buffer, and nothing that was flushed. A
// machine that loses power can also lose the last transactions of an SQLite
// store (synchronous=NORMAL), but not the file. When the disk is full or
// InfluxDB is down, transitions stay in the buffer. When the buffer has
// [Buffering.Limit] transitions, Append rejects new ones with an error and
// counts them in [Figures]. No transition in the buffer is dropped.
//
// # What this package leaves to others
//
// Learners decide when an episode starts and ends, what a reward is, and how
// experience is used. The package has no clock: the ticker and the time of
// [SQLite.Prune] are arguments. Only the pauses between retries and the
// timeouts of requests use real time. The operator of an InfluxDB manages its
// databases, retention and users.
package trajectory
