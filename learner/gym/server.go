package gym

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"connectrpc.com/connect"
)

// Brief is what a client wants to open; what is empty is the server's to choose.
type OpenRequest struct {
	Workload string // a simulated application's name, or namespace/kind/name
	Service  string
	Trace    string
}

// Server serves environments in sessions. All fields are needed, but for those that say otherwise.
type Server struct {
	// Open makes a session's Environment. Its error is a [*workload.NotFoundError] for a name that it does not know, and a
	// *connect.Error where a code is to be chosen; any other one means that the workload cannot be had now.
	Open func(ctx context.Context, b OpenRequest) (workload.Environment, error)
	Seed uint64 // of the first episode of a session that asks for none
	Now  func() time.Time

	Sessions int           // at most at the same time; 0 is 64. A real workload takes one
	Idle     time.Duration // after which a session that is not used ends; 0 is 10 min
	Episode  int           // steps of an episode for who asks for none; 0 is 100, as in AWARE

	Workloads []string // that Open knows, to be told; may be empty
	Traces    []string // likewise
	// Closed is told when an environment could not be left as it was found; may be nil.
	Closed func(session string, err error)

	mu       sync.Mutex
	sessions map[string]*session
	opening  int // sessions whose Environment is being made
}

// MaxEpisode is the longest episode that a client may ask for: a day of 1 s steps, and some.
const MaxEpisode = 100_000

// session is one client's Environment and where its episode stands.
type session struct {
	id      string
	env     workload.Environment
	clip    bool
	episode int // steps
	first   uint64
	resets  uint64

	// Guarded by the server's mu.
	used time.Time
	busy bool // in the middle of a call

	mu   sync.Mutex // held during a call; guards what is below
	over bool       // closed
	at   int        // steps made in this episode; -1 before the first Reset
	seed uint64
}

// Handler is the service over HTTP.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(gymv1.NewGymHandler(s, connect.WithReadMaxBytes(1<<20),
		connect.WithCodec(strict("json")), connect.WithCodec(strict("json; charset=utf-8"))))
	return mux
}

// HTTP is a server of the handler that speaks HTTP/1.1 and, for gRPC, HTTP/2, both without TLS.
func (s *Server) HTTP() *http.Server {
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: s.Handler(), Protocols: &both, ReadHeaderTimeout: 10 * time.Second}
}

// Run ends idle sessions until ctx is done, and then all of them, within the time of grace. No call must come any more by
// then, so the HTTP server stops first.
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

func (s *Server) idle() time.Duration { return or(s.Idle, 10*time.Minute) }

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// idlers picks the sessions that were not used for a while.
func (s *Server) idlers(now time.Time) func(*session) bool {
	return func(one *session) bool { return !one.busy && now.Sub(one.used) > s.idle() }
}

// sweep ends sessions. It is not for the client whose call came upon them to break that off.
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

// end waits for the session's call and leaves the environment as it was found.
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

// take finds a session and holds it for one call.
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
		return nil, nil, connect.NewError(connect.CodeAborted, fmt.Errorf("session %q: it is in the middle of another call; one waits for the answer before the next", id))
	}
	one.busy = true
	one.mu.Lock() // free: only who made it busy has it
	return one, func() {
		one.mu.Unlock()
		s.mu.Lock()
		one.busy, one.used = false, s.Now()
		s.mu.Unlock()
	}, nil
}

// Spaces describes a session's environment, or what can be opened.
func (s *Server) Spaces(ctx context.Context, r *connect.Request[gymv1.SpacesRequest]) (*connect.Response[gymv1.SpacesResponse], error) {
	out := &gymv1.SpacesResponse{Workloads: s.Workloads, Traces: s.Traces}
	if r.Msg.GetSession() == "" {
		return connect.NewResponse(out), nil
	}
	one, release, err := s.take(ctx, r.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	defer release()
	out.Spaces = spacesToWire(one.env.Spaces(), one.episode)
	return connect.NewResponse(out), nil
}

// Init opens a session.
func (s *Server) Init(ctx context.Context, r *connect.Request[gymv1.InitRequest]) (*connect.Response[gymv1.InitResponse], error) {
	m, o := r.Msg, r.Msg.GetOptions()
	if e := m.GetEncoding(); e != 0 && e != Encoding {
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("encoding %d: this server's figures are of encoding %d, in which names and units may be others", e, Encoding))
	}
	if n := o.GetEpisodeSteps(); n > MaxEpisode {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("options.episode_steps %d: it must be at most %d", n, MaxEpisode))
	}
	s.sweep(context.WithoutCancel(ctx), s.idlers(s.Now()))
	if err := s.reserve(); err != nil {
		return nil, err
	}
	env, err := s.Open(ctx, OpenRequest{Workload: m.GetWorkload(), Service: o.GetService(), Trace: o.GetTrace()})
	if err != nil {
		s.mu.Lock()
		s.opening--
		s.mu.Unlock()
		return nil, openError(err)
	}
	one := &session{id: rand.Text(), env: env, clip: o.GetClip(), at: -1, first: s.Seed,
		episode: or(int(o.GetEpisodeSteps()), or(s.Episode, 100)), used: s.Now()}
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
	return connect.NewResponse(&gymv1.InitResponse{Session: one.id, Spaces: spacesToWire(env.Spaces(), one.episode)}), nil
}

// reserve takes a place for a session that is to be made.
func (s *Server) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := or(s.Sessions, 64)
	if n := len(s.sessions) + s.opening; n >= most {
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("sessions: %d are open, and this server takes %d; Close one, or wait until one ends that is not used for %v", n, most, s.idle()))
	}
	s.opening++
	return nil
}

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

// worldError is an error of a world as one of the service.
func worldError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

// Reset begins an episode.
func (s *Server) Reset(ctx context.Context, r *connect.Request[gymv1.ResetRequest]) (*connect.Response[gymv1.ResetResponse], error) {
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
	state, err := one.env.Reset(ctx, seed)
	if err != nil {
		one.at = -1
		return nil, worldError(fmt.Errorf("reset with seed %d: %w", seed, err))
	}
	one.at, one.seed = 0, seed
	one.resets++
	return connect.NewResponse(&gymv1.ResetResponse{State: stateToWire(state), Info: one.info(mdp.Unchanged, "")}), nil
}

func (one *session) info(effect mdp.Effect, text string) *gymv1.Info {
	step, seed := uint32(one.at), one.seed
	info := &gymv1.Info{Step: &step, Effect: effect.String(), Text: text}
	if one.env.Spaces().World == workload.Simulated {
		info.Seed = &seed
	}
	return info
}

// Step carries an action out.
func (s *Server) Step(ctx context.Context, r *connect.Request[gymv1.StepRequest]) (*connect.Response[gymv1.StepResponse], error) {
	one, release, err := s.take(ctx, r.Msg.GetSession())
	if err != nil {
		return nil, err
	}
	defer release()
	switch {
	case one.at < 0:
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("session %q: %w", one.id, env.ErrNotRunning))
	case one.at >= one.episode:
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("session %q: the episode was truncated after %d steps, which is its length: Reset begins the next", one.id, one.episode))
	}
	action, err := parseAction(one.env.Spaces(), r.Msg.GetAction(), one.clip)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	one.at++
	out, err := one.env.Step(ctx, action)
	if err != nil {
		return nil, worldError(fmt.Errorf("step %d of %d: %w", one.at, one.episode, err))
	}
	no, truncated := false, one.at >= one.episode
	answer := &gymv1.StepResponse{State: stateToWire(out.State), Terminated: &no, Truncated: &truncated, Info: one.info(out.Effect, out.Text)}
	answer.Info.Clips = (action.Clipped | out.Clipped).Names()
	if out.RewardKnown {
		reward := float64(out.Reward)
		answer.Reward = &reward
	}
	return connect.NewResponse(answer), nil
}

// Close ends a session.
func (s *Server) Close(ctx context.Context, r *connect.Request[gymv1.CloseRequest]) (*connect.Response[gymv1.CloseResponse], error) {
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
