package cluster

import (
	"context"
	"sync"
	"time"

	"toolfinch/internal/leeway"
)

const (
	// storeEvery is at least between two writes of what has changed: many changes of one session
	// are one.
	storeEvery = 50 * time.Millisecond
	// keepEvery is how often it is said that the sessions here are there.
	keepEvery = 30 * time.Second
	// againAfter is how long a store that failed is left alone.
	againAfter = time.Second
	// sweepAfter is added to how long a session may be idle before it is removed that no replica
	// keeps any more.
	sweepAfter = 4 * keepEvery
	// keptBefore is how often that must have been said in turn before anything is removed: after an
	// outage of the database the other replicas are to say it first.
	keptBefore = 3
)

// Run stores what changes of the sessions here, behind their calls, until ctx ends.
func (h *Homes) Run(ctx context.Context) {
	defer h.hands.CloseIdleConnections()
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	kept := 0
	var giving sync.WaitGroup
	defer giving.Wait()
	for {
		var err error
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(storeWithin))
			defer cancel()
			if err := h.store(ctx); err != nil {
				h.log.Warn("what has changed of sessions is not stored", "error", err)
			}
			return
		case hash := <-h.asked:
			giving.Go(func() { h.giveUp(ctx, hash) })
			continue
		case <-h.wake:
			err = h.store(ctx)
		case <-keep.C:
			if err = h.keep(ctx); err != nil {
				kept = 0
			} else if kept++; kept >= keptBefore {
				err = h.sweep(ctx)
			}
		}
		pause := storeEvery
		if err != nil && ctx.Err() == nil {
			h.log.Warn("what has changed of sessions is not stored yet", "error", err, "retry_in", againAfter)
			pause = againAfter
			h.signal()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// store stores what has changed. What fails is tried again with what is the newest then.
func (h *Homes) store(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(storeWithin))
	defer cancel()
	changed, fresh, ended := h.unstored()
	for id, one := range fresh {
		if _, err := h.put(ctx, id, one); err != nil {
			h.changedAgain(fresh, changed)
			return err
		}
	}
	states := map[[32]byte][]byte{}
	for id, one := range changed {
		if state, ok := one.view.state(id, nil); ok {
			states[one.hash] = state
		}
	}
	if len(states) > 0 {
		lost, err := h.rows.Change(ctx, h.me.ID, states)
		if err != nil {
			h.changedAgain(changed)
			return err
		}
		if err := h.lost(ctx, lost); err != nil {
			return err
		}
	}
	if len(ended) > 0 {
		if err := h.rows.Drop(ctx, h.me.ID, ended); err != nil {
			return err
		}
		h.mu.Lock()
		for _, hash := range ended {
			delete(h.gone, hash)
		}
		h.mu.Unlock()
	}
	return nil
}

// unstored returns the sessions that have changed, those that are not stored at all, and those
// that have ended.
func (h *Homes) unstored() (changed, fresh map[string]*mine, ended [][32]byte) {
	changed, fresh = map[string]*mine{}, map[string]*mine{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, one := range h.mine {
		switch {
		case one.reopening:
			continue
		case !one.stored:
			fresh[id] = one
		case one.changed:
			changed[id] = one
		}
		one.changed = false
	}
	for hash := range h.gone {
		ended = append(ended, hash)
	}
	return changed, fresh, ended
}

func (h *Homes) changedAgain(all ...map[string]*mine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, some := range all {
		for _, one := range some {
			one.changed = true
		}
	}
}

// keep says that the sessions here are there.
func (h *Homes) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(storeWithin))
	defer cancel()
	h.mu.Lock()
	var all [][32]byte
	for _, one := range h.mine {
		if one.stored {
			all = append(all, one.hash)
		}
	}
	h.mu.Unlock()
	if len(all) > 0 {
		lost, err := h.rows.Keep(ctx, h.me.ID, all)
		if err == nil {
			err = h.lost(ctx, lost)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep removes the sessions that nobody keeps.
func (h *Homes) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(storeWithin))
	defer cancel()
	return h.rows.Sweep(ctx, h.idle+sweepAfter)
}

// lost stores sessions that live here again that are not stored any more: nobody kept their rows while only this
// replica did not reach the database, or that has lost what was written last. Those that another replica has adopted
// end here.
func (h *Homes) lost(ctx context.Context, hashes [][32]byte) error {
	if len(hashes) == 0 {
		return nil
	}
	of := map[[32]byte]bool{}
	for _, hash := range hashes {
		of[hash] = true
	}
	here := map[string]*mine{}
	h.mu.Lock()
	for id, one := range h.mine {
		if of[one.hash] {
			here[id] = one
		}
	}
	h.mu.Unlock()
	for id, one := range here {
		kept, err := h.put(ctx, id, one)
		if err != nil {
			h.changedAgain(here)
			return err
		}
		if !kept {
			h.drop(id, one)
		}
	}
	return nil
}

// drop ends a session here that another replica has adopted.
func (h *Homes) drop(id string, one *mine) {
	h.mu.Lock()
	delete(h.mine, id)
	h.mu.Unlock()
	if one.view.local.Load().Drop(id) {
		h.moves.dropped.Add(1)
		h.log.Warn("a session that lived here was adopted by another replica", "view", one.view.name)
	}
}
