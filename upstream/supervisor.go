package upstream

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"time"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// debounce is how long no list_changed may come before the server is listed again.
// debounceMost bounds the total delay. Both grow up to restMost while the lists always change.
const (
	debounce     = 20 * time.Millisecond
	debounceMost = 5 * time.Second
	restMost     = time.Minute
)

// supervisor keeps a server connected and its definitions known, for Pool.Watch.
type supervisor struct {
	server *server
	main   *connector
	anew   <-chan struct{} // holds one signal: connect at once, without the delay after failures
	rest   time.Duration   // the last wait of nextChange after a change; used by watch only
	down   string          // logged reason why the server is unavailable, without numbers; "" if available; used by watch only
}

func (s *supervisor) watch(ctx context.Context, changes chan<- Change) {
	again := conn.NewDelays(conn.FirstDelay)
	s.server.lists.enter(active)
	defer s.server.lists.enter(unwatched)
	for {
		drainSignal(s.anew) // connect does what the signal asks for
		c, err := s.main.connectInTurn(ctx)
		if err == nil {
			err = s.keepListed(ctx, c, changes, again)
		} else {
			kinds, done := s.server.lists.take()
			s.tell(ctx, changes, Change{Server: s.server.settings.Name, Err: err, served: done})
			if len(kinds) > 0 { // they are still to be read
				s.server.lists.changed(kinds...)
			}
		}
		if ctx.Err() != nil {
			return
		}
		drainSignal(s.main.fresh)
		switch {
		case drainSignal(s.anew):
			again.Reset()
			continue
		case s.main.current() != nil, errors.Is(err, errReplaced):
			continue // a call has connected already, or the connection was retired
		}
		if s.server.settings.Fault != "" {
			s.server.lists.enter(unwatched)
			<-ctx.Done()
			return
		}
		s.pause(ctx, err, again)
	}
}

// withoutLogin is the delay between attempts to connect to a server that wants a login: the
// server may no longer want one.
const withoutLogin = 10 * time.Minute

// pause waits before the next attempt after err: for a delay, or until somebody has logged in
// if the server wants a login.
func (s *supervisor) pause(ctx context.Context, err error, again *conn.Delays) {
	s.server.lists.enter(pausing)
	defer s.server.lists.enter(active)
	var after <-chan time.Time
	loggedIn := make(chan struct{})
	if needed, ok := errors.AsType[*login.Needed](err); ok {
		s.unavailable(err, 0)
		after = time.After(withoutLogin)
		waiting, stop := context.WithCancel(ctx)
		defer func() { stop(); <-loggedIn }()
		s.server.work.Go(func() {
			_ = s.server.login.Await(waiting, "", needed.Mark(), "")
			close(loggedIn)
		})
	} else {
		delay := again.Next()
		s.unavailable(err, delay)
		after = time.After(delay)
	}
	select {
	case <-ctx.Done():
	case <-s.main.fresh:
	case <-s.anew:
		again.Reset()
	case <-loggedIn:
		again.Reset()
	case <-after:
	}
}

// keepListed lists all kinds over c, and changed kinds again, until c or ctx ends. While
// another process lists the server, it only reports changes. A failed list is repeated after
// a delay. The error is why c has ended.
func (s *supervisor) keepListed(ctx context.Context, c *connection, changes chan<- Change, again *conn.Delays) error {
	kinds, done := s.server.lists.take() // changed, or not listed yet
	listed := false                      // this process has listed the server over c
	for goOn := true; goOn; {
		leads, turned := s.server.leads()
		if leads && !listed {
			kinds = tool.Kinds
		}
		listed = leads
		change := c.report(ctx, kinds, leads)
		change.served = done
		switch {
		case errors.Is(change.Err, errReplaced) || !s.tell(ctx, changes, change):
			return change.Err
		case change.Err == nil:
			s.available()
			kinds, done, goOn = s.nextChange(ctx, c, leads, turned)
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
		s.server.health.exchanged(err)
	}
	return err
}

// digits may differ between errors with the same reason: ports, times, processes.
var digits = regexp.MustCompile(`[0-9]+`)

// unavailable logs why the server cannot be used. A repeated reason is logged at level debug.
func (s *supervisor) unavailable(err error, retryIn time.Duration) {
	level, why := slog.LevelWarn, digits.ReplaceAllString(conn.Plain(err).Error(), "#")
	if s.down == why {
		level = slog.LevelDebug
	}
	s.down = why
	if retryIn == 0 {
		s.server.log.Log(s.server.life, level, "the upstream needs a login", "error", conn.Plain(err))
		return
	}
	s.server.log.Log(s.server.life, level, "the upstream is not available", "error", conn.Plain(err), "retry_in", retryIn.Round(time.Millisecond))
}

// available logs that the server can be used again.
func (s *supervisor) available() {
	if s.down != "" {
		s.server.log.Info("the upstream is available again")
	}
	s.down = ""
}

// nextChange waits until lists have changed or, if this process lists the server, are too old,
// and returns their kinds. It returns no kinds once turned is closed. again is false if the
// connection or the watch has ended.
func (s *supervisor) nextChange(ctx context.Context, c *connection, leads bool, turned <-chan struct{}) (kinds []tool.Kind, done func(), again bool) {
	known, began := s.server.lists, time.Now()
	known.set(func(l *lists) { l.notifies = c.notifies })
	var old <-chan time.Time
	if leads {
		old = known.old()
	}
	select {
	case <-ctx.Done():
		return nil, nil, false
	case <-c.Service.Done():
		return nil, nil, false
	case <-turned:
		return nil, nil, true
	case <-old:
		known.changed(tool.Kinds...)
	case <-known.due:
	}
	if s.rest = max(debounce, min(2*s.rest, restMost)); time.Since(began) > 4*s.rest {
		s.rest = debounce
	}
	if s.rest > answersWait {
		known.enter(resting)
		defer known.enter(active)
	}
	quiet, most := time.NewTimer(s.rest), time.After(max(debounceMost, s.rest))
	defer quiet.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return nil, nil, false
		case <-known.due:
			quiet.Reset(s.rest)
		case <-quiet.C:
			waiting = false
		case <-most:
			waiting = false
		}
	}
	kinds, done = known.take()
	return kinds, done, true
}

// tell sends a change to the watch. It reports false if ctx has ended.
func (s *supervisor) tell(ctx context.Context, changes chan<- Change, change Change) bool {
	if ctx.Err() != nil { // select could choose a channel with room
		return false
	}
	select {
	case changes <- s.server.mask.change(change):
		return true
	case <-ctx.Done():
		return false
	}
}
