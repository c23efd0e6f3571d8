package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// debounce is how long list_changed has to be quiet before the server is listed,
// and debounceMost how long that can be put off.
const (
	debounce     = 200 * time.Millisecond
	debounceMost = 5 * time.Second
)

// supervisor keeps a server connected and its definitions known, for Pool.Watch.
type supervisor struct {
	*server
	fresh chan struct{} // holds one signal: there is a new connection
	anew  chan struct{} // holds one signal: connect at once, as if for the first time
	down  string        // why the server is not available, as it was logged, without numbers; "" while it is. Of watch alone
}

// watch runs until ctx ends.
func (s *supervisor) watch(ctx context.Context, changes chan<- Change) {
	again := conn.NewDelays(conn.FirstDelay)
	for {
		drainSignal(s.anew) // what it is about is what connect waits for now
		c, err := s.connect(ctx)
		if err == nil {
			err = s.keepListed(ctx, c, changes, again)
		} else {
			s.tell(ctx, changes, Change{Server: s.settings.Name, Err: err})
		}
		if ctx.Err() != nil {
			return
		}
		drainSignal(s.fresh)
		switch {
		case drainSignal(s.anew):
			again.Reset()
			continue
		case s.main.current() != nil, errors.Is(err, errReplaced):
			continue // a call has been quicker, or the connection was retired
		}
		if s.settings.Fault != "" {
			<-ctx.Done()
			return
		}
		s.pause(ctx, err, again)
	}
}

// withoutLogin is how long a server that wants a login is left alone: it may have ceased to.
const withoutLogin = 10 * time.Minute

// pause waits until the server is worth another attempt after err: for a while, or until
// somebody has logged in where that is what it wants.
func (s *supervisor) pause(ctx context.Context, err error, again *conn.Delays) {
	var after <-chan time.Time
	loggedIn := make(chan struct{})
	if needed, ok := errors.AsType[*login.Needed](err); ok {
		s.unavailable(err, 0)
		after = time.After(withoutLogin)
		waiting, stop := context.WithCancel(ctx)
		defer func() { stop(); <-loggedIn }()
		s.work.Go(func() {
			_ = s.login.Await(waiting, "", needed.Mark(), "")
			close(loggedIn)
		})
	} else {
		delay := again.Next()
		s.unavailable(err, delay)
		after = time.After(delay)
	}
	select {
	case <-ctx.Done():
	case <-s.fresh:
	case <-s.anew:
		again.Reset()
	case <-loggedIn:
		again.Reset()
	case <-after:
	}
}

// keepListed lists everything over c, and whatever changes after that, until c
// or ctx ends; while another process lists the server, it only says what has changed. A
// list that fails is asked for again after a delay. The error is why c has ended.
func (s *supervisor) keepListed(ctx context.Context, c *connection, changes chan<- Change, again *conn.Delays) error {
	var kinds []tool.Kind // that have changed, or are not known
	listed := false       // by this process, over c
	for goOn := true; goOn; {
		leads, turned := s.leads(s.settings.Name)
		if leads && !listed {
			kinds = tool.Kinds
		}
		listed = leads
		change := s.hear(ctx, c, kinds, leads)
		switch {
		case errors.Is(change.Err, errReplaced) || !s.tell(ctx, changes, change):
			return change.Err
		case change.Err == nil:
			s.available()
			kinds, goOn = s.nextChange(ctx, c, turned)
		case c.Dead():
			return change.Err
		default:
			delay := again.Next()
			s.unavailable(change.Err, delay)
			goOn = c.Pause(ctx, delay)
		}
	}
	if !c.Dead() {
		return errReplaced
	}
	err := conn.Plain(context.Cause(c.Life))
	if s.main.isLast(c) {
		s.health.exchanged(err)
	}
	return err
}

// digits are what may differ between errors for the same reason: ports, times, processes.
var digits = regexp.MustCompile(`[0-9]+`)

// unavailable logs why the server cannot be used, once for each reason until it can; the
// other attempts are for debugging.
func (s *supervisor) unavailable(err error, retryIn time.Duration) {
	level, why := slog.LevelWarn, digits.ReplaceAllString(conn.Plain(err).Error(), "#")
	if s.down == why {
		level = slog.LevelDebug
	}
	s.down = why
	if retryIn == 0 {
		s.log.Log(s.life, level, "the upstream needs a login", "error", conn.Plain(err))
		return
	}
	s.log.Log(s.life, level, "the upstream is not available", "error", conn.Plain(err), "retry_in", retryIn.Round(time.Millisecond))
}

// available logs that the server can be used again.
func (s *supervisor) available() {
	if s.down != "" {
		s.log.Info("the upstream is available again")
	}
	s.down = ""
}

// nextChange waits until lists have changed and returns which to ask for again; not
// when the connection or the watch has ended. It returns no kinds once turned is closed.
func (s *supervisor) nextChange(ctx context.Context, c *connection, turned <-chan struct{}) (kinds []tool.Kind, again bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case <-c.Service.Done():
		return nil, false
	case <-turned:
		return nil, true
	case <-s.lists.due:
	}
	quiet, most := time.NewTimer(debounce), time.After(debounceMost)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, false
		case <-s.lists.due:
			quiet.Reset(debounce)
		case <-quiet.C:
			return s.lists.take(), true
		case <-most:
			return s.lists.take(), true
		}
	}
}

func (s *supervisor) tell(ctx context.Context, changes chan<- Change, change Change) bool {
	if ctx.Err() != nil { // a channel with room must not win by chance
		return false
	}
	select {
	case changes <- s.mask.change(change):
		return true
	case <-ctx.Done():
		return false
	}
}

// othersWithin bounds the lists of other kinds than tools, which should not be
// kept from anybody by a server that never answers.
const othersWithin = 20 * time.Second

// refresh connects if need be and lists everything.
func (s *server) refresh(ctx context.Context) Change {
	c, err := s.connect(ctx)
	if err != nil {
		return s.failed("connect", conn.Mark(conn.Plain(err), ErrNotConnected))
	}
	leads, _ := s.leads(s.settings.Name)
	return s.hear(ctx, c, tool.Kinds, leads)
}

// hear lists definitions of kinds over c where this process lists the server. Where
// another does, kinds are those that the server said have changed.
func (s *server) hear(ctx context.Context, c *connection, kinds []tool.Kind, leads bool) Change {
	if leads {
		return s.list(ctx, c, kinds)
	}
	s.health.toolsListed(nil) // whether they can be is known to the other process
	return Change{Server: s.settings.Name, Era: c.Era, Interactive: s.questions.any(), Followed: true, Outdated: len(kinds) > 0}
}

// failed is the Change of a server of which nothing became known.
func (s *server) failed(op string, err error) Change {
	return Change{Server: s.settings.Name, Err: &Error{Server: s.settings.Name, Op: op, Err: err}}
}

// list asks for the definitions of kinds over c, all at the same time. Tools
// that cannot be listed are an error; of another kind what was known stays.
func (s *server) list(ctx context.Context, c *connection, kinds []tool.Kind) Change {
	all := make([]listing, len(kinds))
	errs := make([]error, len(kinds))
	var asking sync.WaitGroup
	for i, kind := range kinds {
		asking.Go(func() {
			within := s.limits.Load().call
			if kind != tool.KindTool {
				within = min(within, othersWithin)
			}
			ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: no list of %s within %s", ErrTimeout, listMethods[kind].called, within))
			defer cancel()
			all[i], errs[i] = c.list(ctx, kind)
		})
	}
	asking.Wait()
	change := Change{Server: s.settings.Name, Era: c.Era, Info: c.Info, Instructions: c.Instructions, Capabilities: c.Capabilities}
	got := map[tool.Kind]listing{}
	for i, kind := range kinds {
		err := errs[i]
		if err != nil {
			c.failed(err)
		}
		switch {
		case err == nil, kind != tool.KindTool && unknownMethod(err): // not every server with resources has templates
			got[kind] = all[i]
		case kind == tool.KindTool:
			change.Err = &Error{Server: s.settings.Name, Op: "list tools", Err: conn.Plain(err)}
		case ctx.Err() == nil:
			s.log.Warn("definitions could not be listed; those known before stay", "kind", kind.String(), "error", conn.Plain(err))
		}
	}
	if slices.Contains(kinds, tool.KindTool) && ctx.Err() == nil && !errors.Is(change.Err, errReplaced) {
		s.health.toolsListed(change.Err)
	}
	s.health.exchanged(change.Err)
	change.Interactive = s.questions.any()
	if change.Err == nil {
		s.health.listed(s.lists.keep(got, &change), change.Faults)
	}
	return change
}
