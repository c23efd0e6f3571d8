package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"toolfinch/tool"
)

// debounce is how long list_changed has to be quiet before the server is listed,
// and debounceMost how long that can be put off.
const (
	debounce     = 200 * time.Millisecond
	debounceMost = 5 * time.Second
)

// watch keeps the server connected and its tools known until ctx ends.
func (s *server) watch(ctx context.Context, changes chan<- Change) {
	again := newDelays(firstDelay)
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
			again.reset()
			continue
		case s.seats.main.line.current() != nil:
			continue // a call has been quicker
		}
		delay := again.next()
		s.unavailable(err, delay)
		select {
		case <-ctx.Done():
			return
		case <-s.fresh:
		case <-s.anew:
			again.reset()
		case <-time.After(delay):
		}
	}
}

// keepListed lists everything over c, and whatever changes after that, until c
// or ctx ends. A list that fails is asked for again after a delay. The error is
// why c has ended.
func (s *server) keepListed(ctx context.Context, c *conn, changes chan<- Change, again *delays) error {
	for kinds, goOn := tool.Kinds, true; goOn; {
		change := s.list(ctx, c, kinds)
		switch {
		case errors.Is(change.Err, errRenewed) || !s.tell(ctx, changes, change):
			return change.Err
		case change.Err == nil:
			s.available()
			kinds, goOn = s.rest(ctx, c)
		case c.dead():
			return change.Err
		default:
			delay := again.next()
			s.unavailable(change.Err, delay)
			goOn = c.pause(ctx, delay)
		}
	}
	if !c.dead() {
		return errRenewed
	}
	err := plain(context.Cause(c.life))
	s.exchangedOver(c, err)
	return err
}

// unavailable logs why the server cannot be used, once until it can; the attempts
// after that are for debugging.
func (s *server) unavailable(err error, retryIn time.Duration) {
	s.mu.Lock()
	known := s.down
	s.down = true
	s.mu.Unlock()
	level := slog.LevelWarn
	if known {
		level = slog.LevelDebug
	}
	s.log.Log(s.life, level, "the upstream is not available", "error", plain(err), "retry_in", retryIn.Round(time.Millisecond))
}

// available logs that the server can be used again.
func (s *server) available() {
	s.mu.Lock()
	was := s.down
	s.down = false
	s.mu.Unlock()
	if was {
		s.log.Info("the upstream is available again")
	}
}

// drainSignal takes the signal out of a channel, and reports whether there was one.
func drainSignal(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// rest waits until lists have changed and returns which to ask for again; not
// when the connection or the watch has ended.
func (s *server) rest(ctx context.Context, c *conn) (kinds []tool.Kind, again bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case <-c.service.Done():
		return nil, false
	case <-s.relist:
	}
	quiet, most := time.NewTimer(debounce), time.After(debounceMost)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, false
		case <-s.relist:
			quiet.Reset(debounce)
		case <-quiet.C:
			return s.takePending(), true
		case <-most:
			return s.takePending(), true
		}
	}
}

// takePending returns the lists that have changed, and forgets them.
func (s *server) takePending() (kinds []tool.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range tool.Kinds {
		if s.pending[kind] {
			kinds = append(kinds, kind)
		}
	}
	clear(s.pending)
	return kinds
}

func (s *server) tell(ctx context.Context, changes chan<- Change, change Change) bool {
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

// list asks for the definitions of kinds over c, all at the same time. Tools
// that cannot be listed are an error; of another kind what was known stays.
func (s *server) list(ctx context.Context, c *conn, kinds []tool.Kind) Change {
	got := make([]listing, len(kinds))
	errs := make([]error, len(kinds))
	var listing sync.WaitGroup
	for i, kind := range kinds {
		listing.Go(func() {
			within := s.limits.Load().call
			if kind != tool.KindTool {
				within = min(within, othersWithin)
			}
			ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: no list of %s within %s", ErrTimeout, listMethods[kind].called, within))
			defer cancel()
			got[i], errs[i] = c.list(ctx, kind)
		})
	}
	listing.Wait()
	change := Change{Server: s.settings.Name, Era: c.era, Info: c.info, Instructions: c.instructions, Capabilities: c.offers}
	for i, kind := range kinds {
		err := errs[i]
		if err == nil {
			continue
		}
		s.lost(c, err)
		switch {
		case kind == tool.KindTool:
			change.Err = &Error{Server: s.settings.Name, Op: "list tools", Err: plain(err)}
		case unknownMethod(err):
			errs[i] = nil // not every server with resources has templates
		case ctx.Err() == nil:
			s.log.Warn("definitions could not be listed; those known before stay", "kind", kind.String(), "error", plain(err))
		}
	}
	if slices.Contains(kinds, tool.KindTool) && ctx.Err() == nil && !errors.Is(change.Err, errRenewed) {
		s.mu.Lock()
		s.unlisted = change.Err
		s.mu.Unlock()
	}
	s.exchanged(change.Err)
	s.mu.Lock()
	defer s.mu.Unlock()
	change.Interactive = s.interactive
	if change.Err != nil {
		return change
	}
	for i, kind := range kinds {
		if errs[i] == nil {
			s.listed[kind] = got[i]
		}
	}
	change.Cache = map[tool.Kind]CacheHint{}
	for _, kind := range tool.Kinds {
		one := s.listed[kind]
		change.Defs = append(change.Defs, one.defs...)
		change.Faults.add(one.faults)
		if one.hint != nil {
			change.Cache[kind] = *one.hint
		}
	}
	s.status.Tools = len(s.listed[tool.KindTool].defs)
	s.status.LeftOut, s.status.Mended = change.Faults.LeftOut, change.Faults.Mended
	return change
}
