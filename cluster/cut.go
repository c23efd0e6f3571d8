package cluster

import (
	"context"
	"time"

	"toolfinch/trust"
)

const (
	// cutFor is how long a replica is not tried that could not be reached.
	cutFor = 5 * time.Second
	// givenWithin bounds how long a replica that cannot be reached may take to give a session up:
	// more than flushing its event stream there takes.
	givenWithin = 3 * time.Second
	// givenEvery is between two looks whether it has.
	givenEvery = 50 * time.Millisecond
)

// isCut reports whether a replica could not be reached a moment ago.
func (h *Homes) isCut(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.cut[id])
}

// cutOff takes down that a replica cannot be reached.
func (h *Homes) cutOff(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, until := range h.cut {
		if time.Now().After(until) {
			delete(h.cut, id)
		}
	}
	h.cut[id] = time.Now().Add(cutFor)
}

// getBack reports whether a session may be adopted whose home cannot be reached from here: the
// home is gone, or it was asked over the store and has given the session up. What the store
// cannot tell is taken for gone where the home refuses connections.
func (h *Homes) getBack(ctx context.Context, hash [32]byte, from Peer, refuses bool) bool {
	h.cutOff(from.ID)
	ctx, cancel := context.WithTimeout(ctx, givenWithin)
	defer cancel()
	for asked := false; ; asked = true {
		there, err := h.there(ctx, from.ID)
		switch {
		case err != nil:
			return refuses
		case !there:
			return true
		case !asked:
			err = h.ask(ctx, from.ID, hash)
		}
		if row, found, failed := h.rows.Find(ctx, hash); failed == nil && (!found || row.Home != from.ID) {
			return true
		}
		select {
		case <-ctx.Done():
			h.log.Warn("a session whose replica cannot be reached was not given up there", "replica", from.ID, "error", err)
			return false
		case <-time.After(givenEvery):
		}
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
	view.local.Load().GiveUp(ctx, id)
}
