// Package encode turns a State into the vector that a network reads, and what a
// network says into an Action: it is the one place where learners meet the
// decision process.
//
// A [Form] says which signals the vector has and what the actions are: a list
// of choices (steps of one knob each), or a box (one number for each knob). The
// form is the same for all workloads, so that a policy that learned on one can
// serve another; policy files carry it, and a policy whose form differs is
// refused. A [Place] is one workload: its bounds and its SLO are the scales of
// the vector, so that "half of what it may have" looks the same everywhere.
//
// An [Encoder] is a form at a place:
//
//   - [Encoder.Observe] and [Encoder.State] are inverse to each other. Each signal has two numbers: its scaled value, and
//     whether it was observed. What was not observed is 0 and 0; it is never a zero that looks like a value.
//   - [Encoder.Legal] says which choices would change something within the bounds. Keeping everything is always legal.
//   - [Encoder.Choice] makes an Action of a choice, and [Encoder.Nearest] projects any Action (a rule's jump, what a guard
//     left of a proposal) onto the nearest legal choice.
//   - [Encoder.FromBox] and [Encoder.ToBox] do the same for boxes, geometrically between the bounds.
//
// A form can also have [Corrections] of the demand policy as its actions: a step of a margin, of the level or of the
// replicas. A [Corrector] encodes it; an Encoder refuses it.
//
// It walks over mdp's tables: a new signal with a known unit, and a new knob,
// need nothing here.
package encode
