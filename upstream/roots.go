package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

const (
	// rootsWithin is how long the first call of a session waits until the server has asked
	// for the session's roots. A process on a busy machine may need seconds to ask.
	rootsWithin = 5 * time.Second
	// rootsTakenIn is how long a server has to store roots that it has read.
	rootsTakenIn = 50 * time.Millisecond
	// rootsToldWithin bounds the notification that roots have changed.
	rootsToldWithin = 10 * time.Second
)

// roots follows how the server of one connection learns its client's roots.
type roots struct {
	conn      *conn.Conn
	calls     *calls
	questions *questions
	log       *slog.Logger

	mu    sync.Mutex    // guards the fields below; never held over I/O
	of    string        // key of the last session whose first call waited for the server
	first *call         // that first call, while it waits
	begun event         // first was set
	known chan struct{} // closed when that first call has stopped waiting
	asked int           // number of questions for roots; they are numbered from 1
	sent  int           // number of the newest answered question
	grown event         // asked or sent has grown
}

// errOtherRoots ends a call that the server would carry out with another client's roots.
var errOtherRoots = fmt.Errorf("%w: the server did not ask for this client's roots within %s; call again", ErrTimeout, rootsWithin)

// prepare makes the server ask for the roots of a session before the session's first call
// is sent, so that the call is not carried out with other permissions. Each call of a
// 2026-07-28 client counts as a first call, because it has no session. stale says that the
// server has asked for the roots of another client.
func (r *roots) prepare(c *call, stale bool) error {
	if told := r.calls.rootsOwner(); c.Client != nil && c.Client.Modern && told != "" && told == c.rootsOwner() {
		return nil // the server knows these roots from an earlier call
	}
	r.mu.Lock()
	asked := r.asked // before the server can ask because of this call
	r.mu.Unlock()
	if stale {
		r.notifyChanged()
	}
	if r.conn.Era != EraLegacy || !c.Client.Can(tool.CapabilityRoots) {
		return nil
	}
	r.mu.Lock()
	isFirst := r.of != c.Client.Key
	if isFirst {
		r.of, r.first, r.known = c.Client.Key, c, make(chan struct{})
		r.begun.happen()
	}
	known, wanted := r.known, 1
	if stale {
		wanted = asked + 1
	}
	r.mu.Unlock()
	if !isFirst {
		select {
		case <-known:
		case <-c.ctx.Done():
		}
		return nil
	}
	defer func() {
		r.mu.Lock()
		r.first = nil
		r.mu.Unlock()
		close(known)
	}()
	switch {
	case !r.questions.wantsRoots():
	case r.waitSent(c, wanted):
		if stale {
			r.questions.asksAgain()
		}
	case c.ctx.Err() == nil && !r.conn.Dead() && !r.questions.noAnswer():
		return errOtherRoots
	}
	return nil
}

// waitSent waits at most rootsWithin until this question or a later question is answered. A
// 2026-07-28 client answers with another request, so its time does not count.
func (r *roots) waitSent(c *call, question int) bool {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	timer := time.AfterFunc(leeway.Of(rootsWithin), cancel)
	defer timer.Stop()
	for {
		r.mu.Lock()
		asked, sent, grown := r.asked >= question, r.sent >= question, r.grown.next()
		r.mu.Unlock()
		if sent {
			r.takenIn(ctx)
			return true
		}
		if asked && c.Client.Modern {
			timer.Stop()
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return false
		case <-r.conn.Life.Done():
			return false
		}
	}
}

// takenIn waits until the server has probably stored the roots that it was sent: it has
// read them once it answers a later ping.
func (r *roots) takenIn(ctx context.Context) {
	_, _ = r.conn.Request(ctx, "ping", nil, nil)
	r.conn.Pause(ctx, rootsTakenIn)
}

// wasAsked counts a question of the server, and returns its number.
func (r *roots) wasAsked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	r.grown.happen()
	return r.asked
}

// wasSent notes that a question was answered; 0 is no question.
func (r *roots) wasSent(question int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = max(r.sent, question)
	r.grown.happen()
}

// ask asks a session for its roots. A session that cannot be reached outside of calls is
// asked through its first call.
func (r *roots) ask(ctx context.Context, key, method string, params json.RawMessage) (json.RawMessage, error) {
	events := r.questions.events
	if events.Reaches != nil && !events.Reaches(key) {
		if c := r.firstCall(ctx); c != nil {
			result, _, err := c.ask(ctx, method, params)
			return result, err
		}
	}
	return events.Ask(ctx, key, method, params)
}

// firstCall waits at most rootsWithin for the first call of the connection's session. It
// returns nil if that call does not wait for roots.
func (r *roots) firstCall(ctx context.Context) *call {
	r.mu.Lock()
	none, begun := r.of == "", r.begun.next()
	r.mu.Unlock()
	if none {
		timer := time.NewTimer(leeway.Of(rootsWithin))
		defer timer.Stop()
		select {
		case <-begun:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// notifyChanged tells the server that the roots have changed. It does not wait.
func (r *roots) notifyChanged() {
	c := r.conn
	if c.Era != EraLegacy {
		return
	}
	c.Go(func() {
		ctx, cancel := context.WithTimeout(c.Life, leeway.Of(rootsToldWithin))
		defer cancel()
		if err := c.Notify(ctx, "notifications/roots/list_changed", nil); err != nil && !errors.Is(err, context.Canceled) {
			r.log.Debug("the upstream was not told of other roots", "error", err)
		}
	})
}

// mayTell reports whether a result of roots/list may be passed on to the server. If calls of
// other clients prevent it, later is closed when a call has ended.
func (r *roots) mayTell(owner rootsOwner, key string, result json.RawMessage) (may bool, later <-chan struct{}) {
	if r.calls.shared || !hasRoots(result) {
		return true, nil
	}
	if may, later = r.calls.tellRoots(owner, key); may {
		r.questions.toldRoots()
	}
	return may, later
}
