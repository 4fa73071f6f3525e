package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"awarescale.dev/aware/learner/experience/trajectory"
)

// storeAt is where the trajectory store is, and the folder for what was learned of it. It is zero where there is none.
type storeAt struct {
	file   string                   // of SQLite; empty for an InfluxDB
	influx *trajectory.InfluxConfig // nil for a file
	secret string                   // file of the InfluxDB's token or password; empty: it asks for none
	agents string
}

// storeFlags reads --trajectory-store, --trajectory-secret-file and --agents-folder. Their errors name the flag.
func (s *settings) storeFlags() (storeAt, error) {
	store, secret, agents := s.trajectories, s.secretFile, s.agentsFolder
	at := storeAt{secret: secret, agents: agents}
	if store == "" {
		for flag, value := range map[string]string{"trajectory-secret-file": secret, "agents-folder": agents} {
			if value != "" {
				return at, fmt.Errorf("flag --%s: %q: it is for a trajectory store, and --trajectory-store is empty", flag, value)
			}
		}
		return at, nil
	}
	if !s.has(autoscaler) {
		return at, fmt.Errorf("flag --trajectory-store: %q: it is for role autoscaler, and --roles is %s", store,
			strings.Join(s.roles, ","))
	}
	if !strings.Contains(store, "://") {
		if secret != "" {
			return at, fmt.Errorf("flag --trajectory-secret-file: %q: it is for an InfluxDB, and --trajectory-store is %q", secret, store)
		}
		if at.file = store; agents == "" {
			at.agents = filepath.Join(filepath.Dir(store), "agents")
		}
		return at, nil
	}
	c, err := influxAt(store)
	if err != nil {
		return at, fmt.Errorf("flag --trajectory-store: %w", err)
	}
	if at.influx = c; agents == "" {
		return at, errors.New("flag --agents-folder: it is empty: with an InfluxDB it must name a folder")
	}
	return at, nil
}

// influxAt reads the URL of an InfluxDB: its path is the database, and its parameters are bucket and org (of 2.x and 3.x) or
// user (of 1.x).
func influxAt(text string) (*trajectory.InfluxConfig, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it cannot be parsed as a URL") // it may hold a password: it is not repeated
	}
	if u.User != nil {
		return nil, errors.New("the URL has a user: use the parameter user and --trajectory-secret-file, for command lines are shown")
	}
	c := &trajectory.InfluxConfig{URL: u.Scheme + "://" + u.Host, Database: strings.Trim(u.Path, "/")}
	q := u.Query()
	c.Bucket, c.Org, c.User = q.Get("bucket"), q.Get("org"), q.Get("user")
	for _, known := range []string{"bucket", "org", "user"} {
		q.Del(known)
	}
	for other := range q {
		return nil, fmt.Errorf("parameter %q: it must be bucket, org or user", other)
	}
	if c.User != "" && c.Bucket != "" {
		return nil, errors.New("parameters user and bucket: InfluxDB 1.x has users, and 2.x and 3.x buckets with tokens")
	}
	return c, c.Check()
}

// open opens the store. A file must be there to be opened; an InfluxDB may come later.
func (at storeAt) open(ctx context.Context) (trajectory.Store, error) {
	if at.influx == nil {
		return trajectory.OpenSQLite(ctx, at.file, trajectory.Buffering{})
	}
	c := *at.influx
	if at.secret != "" {
		text, err := os.ReadFile(at.secret)
		if err != nil {
			return nil, fmt.Errorf("flag --trajectory-secret-file: %w", err)
		}
		if secret := strings.TrimSpace(string(text)); c.Bucket != "" {
			c.Token = secret
		} else {
			c.Password = secret
		}
	}
	return trajectory.OpenInflux(c, trajectory.Buffering{})
}
