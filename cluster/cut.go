package cluster

import (
	"context"
	"net/http"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/trust"
)

const (
	// cutFor is how long a replica is not tried that could not be reached.
	cutFor = 5 * time.Second
	// givenWithin bounds how long a replica that cannot be reached may take to give a session up:
	// more than flushing its event stream there takes.
	givenWithin = 3 * time.Second
	// lookFirst and lookMost are between two looks whether another replica has done something: each time doubled.
	lookFirst, lookMost = 50 * time.Millisecond, 500 * time.Millisecond
)

// cut is a replica that could not be reached a moment ago.
type cut struct {
	until time.Time // when it is tried again
	what  outcome   // of the last try: refused or unreachable
}

// reach is hand, unless the replica could not be reached a moment ago.
func (h *Homes) reach(w http.ResponseWriter, r *http.Request, sent []byte, to Peer, pass bool) outcome {
	h.mu.Lock()
	last := h.cut[to.ID]
	h.mu.Unlock()
	if time.Now().Before(last.until) {
		return last.what
	}
	return h.hand(w, r, sent, to, pass)
}

// cutOff takes down that a replica cannot be reached.
func (h *Homes) cutOff(id string, what outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for id, one := range h.cut {
		if now.After(one.until) {
			delete(h.cut, id)
		}
	}
	if h.cut[id].until.IsZero() {
		h.cut[id] = cut{now.Add(cutFor), what}
	}
}

// back is getBack, once for all requests for a session that come meanwhile.
func (h *Homes) back(ctx context.Context, hash [32]byte, from Peer, refuses bool) bool {
	got, _, _ := h.backs.Do(string(hash[:]), func() (any, error) {
		return h.getBack(context.WithoutCancel(ctx), hash, from, refuses), nil
	})
	return got == true
}

// getBack reports whether a session may be adopted whose home cannot be reached from here: the
// home is gone, or it was asked over the store and has given the session up. What the store
// cannot tell is taken for gone where the home refuses connections.
func (h *Homes) getBack(ctx context.Context, hash [32]byte, from Peer, refuses bool) bool {
	ctx, cancel := context.WithTimeout(ctx, h.patience) // for the store
	defer cancel()
	asked, enough := false, (<-chan time.Time)(nil)
	for pause := lookFirst; ; pause = min(2*pause, lookMost) {
		there, err := h.there(ctx, from.ID)
		switch {
		case err != nil && refuses, err == nil && !there && (refuses || !h.isThere(from.ID)):
			return true
		case err == nil && !asked:
			if err = h.ask(ctx, from.ID, hash); err == nil {
				asked, enough = true, time.After(leeway.Of(givenWithin))
			}
		}
		if row, found, failed := h.rows.Find(ctx, hash); failed == nil && (!found || row.Home != from.ID) {
			return true
		}
		select {
		case <-time.After(pause):
			continue
		case <-enough:
		case <-ctx.Done():
		}
		h.log.Warn("a session whose replica cannot be reached was not given up there", "replica", from.ID, "error", err)
		return false
	}
}

// Asked hears that another replica, which cannot reach this one, asks for a session. It does not
// block.
func (h *Homes) Asked(hash [32]byte) {
	select {
	case h.asked <- hash:
	default: // it is asked for again
	}
}

// giveUp gives a session up unless a request is in flight.
func (h *Homes) giveUp(ctx context.Context, hash [32]byte) {
	h.mu.Lock()
	id, view := "", (*View)(nil)
	for of, one := range h.mine {
		if one.hash == hash && !one.reopening {
			id, view = of, one.view
		}
	}
	h.mu.Unlock()
	if view == nil {
		return
	}
	h.log.Warn("another replica cannot reach this one, and asks for a session", "session", trust.Digest(id), "view", view.name)
	if view.local.Load().GiveUp(ctx, id); !h.isMine(id) {
		h.given.put(hash, Peer{})
	}
}

// settle hands a request for a session, which was given up here to a replica that has given it up
// now, to a third one: between those two, which do not reach each other, it would move to and fro
// with the requests that come in at either. It reports false where no third one takes it.
func (h *Homes) settle(w http.ResponseWriter, r *http.Request, sent []byte, hash [32]byte, from Peer) bool {
	_, was := h.given.get(hash)
	if _, isCarried := r.Context().Value(carriedKey{}).(carried); !was || isCarried { // this is the third one
		return false
	}
	for _, third := range h.peers() {
		if third.ID == from.ID {
			continue
		}
		switch what := h.reach(w, r, sent, third, true); what {
		case answered, brokenOff:
			h.moved.put(hash, third)
			return true
		case refused, unreachable:
			h.cutOff(third.ID, what)
		}
	}
	return false
}
