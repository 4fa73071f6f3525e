package gym

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"connectrpc.com/connect"
)

// OpenRequest is the workload that a client opens. The server chooses the empty
// fields.
type OpenRequest struct {
	Workload string // name of a simulated application, or namespace/kind/name
	Service  string
	Trace    string
}

// Server serves environments in sessions. All fields are required, except where
// a comment says otherwise.
type Server struct {
	// Open creates the Environment of a session. Its error is a
	// [*workload.NotFoundError] for an unknown name, or a *connect.Error to
	// select a code. Any other error means that the workload is not available
	// now.
	Open func(ctx context.Context, b OpenRequest) (workload.Environment, error)
	// OpenAll creates the Joint of a session that acts on all services, as Open
	// does; the request names no service. It is nil where there is one service.
	OpenAll func(ctx context.Context, b OpenRequest) (workload.Joint, error)

	Seed uint64 // of the first episode, when the client gives none
	Now  func() time.Time

	Sessions int           // maximum number of open sessions; 0 is 64
	Idle     time.Duration // time after which an unused session ends; 0 is 10 min
	Episode  int           // steps of an episode, when the client gives no number; 0 is 100, as in AWARE

	Workloads []string // known to Open, for Spaces; may be empty
	Traces    []string // known to Open, for Spaces; may be empty
	// Closed is called when the initial state of an environment could not be
	// restored; may be nil.
	Closed func(session string, err error)

	mu       sync.Mutex
	sessions map[string]*session
	opening  int // number of sessions for which Open is running
}

// MaxEpisode is the largest number of steps of an episode: a bit more than a
// day with steps of 1 s.
const MaxEpisode = 100_000

// session is the environment of one client and the state of its episode.
type session struct {
	id       string
	env      workload.Joint
	all      bool              // it acts on all services, and messages name them
	encoders []*encode.Encoder // of the services; empty when the client wants no vectors
	clip     bool              // actions outside the space are clipped
	episode  int               // length in steps
	first    uint64            // seed of the first episode
	resets   uint64            // number of resets since first was set

	// The server's mu guards these fields.
	used time.Time // end of the last call
	busy bool      // a call is running

	mu   sync.Mutex // held during a call; guards the fields below
	over bool       // closed
	at   int        // steps in this episode; -1 before the first Reset
	seed uint64     // of this episode
}

// Handler serves the service over HTTP.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(gymv1.NewGymHandler(s, connect.WithReadMaxBytes(1<<20),
		connect.WithCodec(JSON), connect.WithCodec(strict("json; charset=utf-8"))))
	return mux
}

// HTTP returns a server for the handler with HTTP/1.1 and, for gRPC, HTTP/2,
// both without TLS.
func (s *Server) HTTP() *http.Server {
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: s.Handler(), Protocols: &both, ReadHeaderTimeout: 10 * time.Second}
}

// Run ends idle sessions until ctx is done. Then it ends all sessions within
// the time grace. There must be no calls after that, so the caller stops the
// HTTP server first.
func (s *Server) Run(ctx context.Context, grace time.Duration) {
	tick := time.NewTicker(max(time.Second, s.idle()/10))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sweep(ctx, s.idlers(s.Now()))
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			s.sweep(end, func(*session) bool { return true })
			return
		}
	}
}

// idle is Idle or its default.
func (s *Server) idle() time.Duration { return or(s.Idle, 10*time.Minute) }

// or is v, or otherwise if v is zero.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// idlers selects the sessions that were not used for longer than Idle.
func (s *Server) idlers(now time.Time) func(*session) bool {
	return func(one *session) bool { return !one.busy && now.Sub(one.used) > s.idle() }
}

// sweep ends the selected sessions. The caller must pass a context that the
// cancellation of a client's call does not end.
func (s *Server) sweep(ctx context.Context, which func(*session) bool) {
	s.mu.Lock()
	var ended []*session
	for id, one := range s.sessions {
		if which(one) {
			delete(s.sessions, id)
			ended = append(ended, one)
		}
	}
	s.mu.Unlock()
	for _, one := range ended {
		if err := one.end(ctx); err != nil && s.Closed != nil {
			s.Closed(one.id, err)
		}
	}
}

// end waits for the running call of the session, and closes the environment,
// which restores its initial state.
func (one *session) end(ctx context.Context) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.over {
		return nil
	}
	one.over = true
	if c, ok := one.env.(workload.Closer); ok {
		return c.Close(ctx)
	}
	return nil
}

// take finds a session and reserves it for one call. The caller must call the
// returned function at the end of the call.
func (s *Server) take(ctx context.Context, id string) (*session, func(), error) {
	s.sweep(context.WithoutCancel(ctx), s.idlers(s.Now()))
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[id]
	if one == nil {
		return nil, nil, connect.NewError(connect.CodeNotFound,
			fmt.Errorf("session %q: there is none; Init opens one, and one that is not used for %v ends", id, s.idle()))
	}
	if one.busy {
		return nil, nil, connect.NewError(connect.CodeAborted,
			fmt.Errorf("session %q: it is in the middle of another call; one waits for the answer before the next", id))
	}
	one.busy = true
	one.mu.Lock() // it is free, because busy was false
	return one, func() {
		one.mu.Unlock()
		s.mu.Lock()
		one.busy = false
		one.used = s.Now()
		s.mu.Unlock()
	}, nil
}

// Spaces describes the environment of a session. Without a session it lists the
// workloads and traces.
func (s *Server) Spaces(
	ctx context.Context, r *connect.Request[gymv1.SpacesRequest],
) (*connect.Response[gymv1.SpacesResponse], error) {
	out := &gymv1.SpacesResponse{Workloads: s.Workloads, Traces: s.Traces}
	if r.Msg.GetSession() == "" {
		return connect.NewResponse(out), nil
	}
	one, release, err := s.take(ctx, r.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	defer release()
	out.Spaces = one.spaces()
	return connect.NewResponse(out), nil
}

// Init opens a session.
func (s *Server) Init(
	ctx context.Context, r *connect.Request[gymv1.InitRequest],
) (*connect.Response[gymv1.InitResponse], error) {
	m, o := r.Msg, r.Msg.GetOptions()
	if e := m.GetEncoding(); e != 0 && e != Encoding {
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("encoding %d: this server's figures are of encoding %d, in which names and units may be others",
				e, Encoding))
	}
	if n := o.GetEpisodeSteps(); n > MaxEpisode {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("options.episode_steps %d: it must be at most %d", n, MaxEpisode))
	}
	if name := o.GetService(); o.GetAllServices() && name != "" {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("options.service %q: it must be empty with options.all_services", name))
	}
	s.sweep(context.WithoutCancel(ctx), s.idlers(s.Now()))
	if err := s.reserve(); err != nil {
		return nil, err
	}
	one, err := s.open(ctx, m)
	if err != nil {
		s.mu.Lock()
		s.opening--
		s.mu.Unlock()
		return nil, openError(err)
	}
	if m.Seed != nil {
		one.first = m.GetSeed()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if s.sessions == nil {
		s.sessions = map[string]*session{}
	}
	s.sessions[one.id] = one
	return connect.NewResponse(&gymv1.InitResponse{
		Session: one.id,
		Spaces:  one.spaces(),
	}), nil
}

// open creates a session with its environment.
func (s *Server) open(ctx context.Context, m *gymv1.InitRequest) (*session, error) {
	o := m.GetOptions()
	one := &session{
		id:      rand.Text(),
		all:     o.GetAllServices(),
		clip:    o.GetClip(),
		episode: or(int(o.GetEpisodeSteps()), or(s.Episode, 100)),
		first:   s.Seed,
		used:    s.Now(),
		at:      -1,
	}
	request := OpenRequest{Workload: m.GetWorkload(), Service: o.GetService(), Trace: o.GetTrace()}
	switch {
	case one.all && s.OpenAll == nil:
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			errors.New("options.all_services true: the workload here has one service; all are acted upon in simulated worlds only"))
	case one.all:
		var err error
		if one.env, err = s.OpenAll(ctx, request); err != nil {
			return nil, err
		}
	default:
		env, err := s.Open(ctx, request)
		if err != nil {
			return nil, err
		}
		one.env = alone{env}
	}
	if !o.GetEncoded() {
		return one, nil
	}
	for _, spaces := range one.env.Spaces() {
		e, err := spaces.Encoder(encode.Box(spaces.Knobs))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("options.encoded true: %w", err), one.end(context.WithoutCancel(ctx)))
		}
		one.encoders = append(one.encoders, e)
	}
	return one, nil
}

// reserve counts a new session, or returns an error when there are too many.
func (s *Server) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := or(s.Sessions, 64)
	if n := len(s.sessions) + s.opening; n >= limit {
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("sessions: %d are open, and this server takes %d; Close one, or wait until one ends that is not used for %v",
				n, limit, s.idle()))
	}
	s.opening++
	return nil
}

// openError converts an error of Open to an error of the service.
func openError(err error) error {
	var chosen *connect.Error
	var unknown *workload.NotFoundError
	switch {
	case errors.As(err, &chosen):
		return chosen
	case errors.As(err, &unknown):
		return connect.NewError(connect.CodeNotFound, err)
	}
	return worldError(err)
}

// worldError converts an error of an environment to an error of the service.
func worldError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

// Reset starts an episode.
func (s *Server) Reset(
	ctx context.Context, r *connect.Request[gymv1.ResetRequest],
) (*connect.Response[gymv1.ResetResponse], error) {
	one, release, err := s.take(ctx, r.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	defer release()
	seed := one.first + one.resets
	if r.Msg.Seed != nil {
		seed = r.Msg.GetSeed()
		one.first, one.resets = seed, 0
	}
	one.at = -1
	found, err := one.env.Reset(ctx, seed)
	var states []*gymv1.State
	if err == nil {
		states, err = one.states(found)
	}
	if err != nil {
		return nil, worldError(fmt.Errorf("reset with seed %d: %w", seed, err))
	}
	one.at, one.seed = 0, seed
	one.resets++
	answer := &gymv1.ResetResponse{Info: one.info(mdp.Unchanged, "")}
	if !one.all {
		answer.State = states[0]
		return connect.NewResponse(answer), nil
	}
	answer.Services = map[string]*gymv1.State{}
	for i, spaces := range one.env.Spaces() {
		answer.Services[spaces.Service] = states[i]
	}
	return connect.NewResponse(answer), nil
}

// info describes the last step. The seed is included only for simulated
// workloads.
func (one *session) info(effect mdp.Effect, text string) *gymv1.Info {
	step, seed := uint32(one.at), one.seed
	info := &gymv1.Info{Step: &step, Effect: effect.String(), Text: text}
	if one.env.Spaces()[0].World == workload.Simulated {
		info.Seed = &seed
	}
	return info
}

// Step executes an action and waits for one time step.
func (s *Server) Step(
	ctx context.Context, r *connect.Request[gymv1.StepRequest],
) (*connect.Response[gymv1.StepResponse], error) {
	one, release, err := s.take(ctx, r.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	defer release()
	switch {
	case one.at < 0:
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("session %q: %w", one.id, env.ErrNotRunning))
	case one.at >= one.episode:
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("session %q: the episode was truncated after %d steps, which is its length: Reset begins the next",
				one.id, one.episode))
	}
	actions, err := one.actions(r.Msg)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	one.at++
	out, err := one.env.Step(ctx, actions)
	found := make([]mdp.State, len(out))
	for i := range out {
		found[i] = out[i].State
		out[i].Clipped |= actions[i].Clipped
	}
	var states []*gymv1.State
	if err == nil {
		states, err = one.states(found)
	}
	if err != nil {
		return nil, worldError(fmt.Errorf("step %d of %d: %w", one.at, one.episode, err))
	}
	terminated, truncated := false, one.at >= one.episode
	answer := &gymv1.StepResponse{Terminated: &terminated, Truncated: &truncated}
	if one.all {
		one.whole(answer, out, states)
		return connect.NewResponse(answer), nil
	}
	answer.State = states[0]
	answer.Reward = rewardToWire(out[0])
	answer.Info = one.info(out[0].Effect, out[0].Text)
	answer.Info.Clips = out[0].Clipped.Names()
	return connect.NewResponse(answer), nil
}

// Close ends a session.
func (s *Server) Close(
	ctx context.Context, r *connect.Request[gymv1.CloseRequest],
) (*connect.Response[gymv1.CloseResponse], error) {
	one, release, err := s.take(ctx, r.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	delete(s.sessions, one.id)
	s.mu.Unlock()
	release()
	if err := one.end(context.WithoutCancel(ctx)); err != nil {
		return nil, worldError(fmt.Errorf("closing session %q: %w", one.id, err))
	}
	return connect.NewResponse(&gymv1.CloseResponse{}), nil
}
