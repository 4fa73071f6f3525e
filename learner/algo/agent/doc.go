// Package agent is what the agents of all algorithms have in common: checks of
// what they are given ([Shape]) and of settings ([BadSetting], [CheckBounds]),
// and counts of what they could not learn from ([Skipped]), which everyone can
// read as [Stats].
//
// What is learned, and how, belongs to the algorithms.
package agent
