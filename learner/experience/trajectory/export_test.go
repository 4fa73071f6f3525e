package trajectory

import (
	"context"
	"database/sql"

	"awarescale.dev/aware/learner/mdp"
)

var (
	AppendBody = appendBody
	DecodeBody = decodeBody
)

// Check tells whether Append would take the transition.
func Check(workload string, episode, step int, t mdp.Transition) error {
	return (&row{workload, episode, step, t}).check()
}

// Line is a transition in line protocol.
func Line(workload string, episode, step int, t mdp.Transition) string {
	return string(appendLine(nil, &row{workload, episode, step, t}))
}

// Answered are the transitions and totals of an answer, each with its error.
func Answered(text []byte) (transitions []mdp.Transition, errs []error, err error) {
	all, err := decodeAnswer(text)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range all {
		for i := range one.values {
			t, err := point{one, i}.transition()
			if err != nil {
				errs = append(errs, err)
			} else {
				transitions = append(transitions, t)
			}
			if _, _, err := (point{one, i}).total(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return transitions, errs, nil
}

// Migrate brings a file through a list of migrations that goes on after the
// real ones.
func Migrate(ctx context.Context, path string, more ...string) error {
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	return migrate(ctx, db, append(append([]string{}, migrations...), more...))
}

// Writer is the connection that writes.
func (s *SQLite) Writer() *sql.DB { return s.writer }
