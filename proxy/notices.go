package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"toolfinch/internal/leeway"
	"toolfinch/store"
	"toolfinch/upstream"
)

// hear takes in changes by other replicas until ctx ends. Changes for the loop, which may be busy for long, are queued
// aside, so that revoked keys do not wait for it.
func (p *Proxy) hear(ctx context.Context, changes chan<- upstream.Change) {
	signal := func() chan struct{} { return make(chan struct{}, 1) }
	learned, called, embedded := signal(), signal(), signal()
	servers := changedServers{work: make(chan struct{}, 1), versions: map[string]int64{}}
	var lazy sync.WaitGroup
	defer lazy.Wait()
	lazy.Go(func() { servers.run(ctx, changes) })
	lazy.Go(func() {
		lazilyDo(ctx, lazily, learned, func() {
			if store.Transient(p.unread(ctx, store.TopicLearned, p.recallLearned(ctx))) {
				wake(learned)
			}
		})
	})
	lazy.Go(func() {
		lazilyDo(ctx, lazily, called, func() {
			if store.Transient(p.unread(ctx, store.TopicCalled, p.recallCalled(ctx))) {
				wake(called)
			}
		})
	})
	lazy.Go(func() { lazilyDo(ctx, lazily, embedded, func() { wake(p.embedder.work) }) })
	p.others.changes.Run(ctx, func(ctx context.Context, n store.Notice) (err error) {
		if n.Detail != "" { // the change has one owner or row: a revoked key must not wait long behind it
			within, cancel := context.WithTimeout(ctx, leeway.Of(takeWithin))
			defer cancel()
			ctx = within
		}
		switch n.Kind {
		case store.TopicServer:
			servers.put(n.Key, n.Version)
		case store.TopicProvisions:
			err = p.recallProvisions(ctx, n.Detail)
		case store.TopicKeys:
			p.desk.entrance.Forget()
			wake(p.desk.keysChanged)
		case store.TopicLearned:
			wake(learned)
		case store.TopicCalled:
			wake(called)
		case store.TopicVault:
			p.pool.LoginChanged(n.Detail)
			err = p.logins.rows.readAnew(ctx, n.Detail)
		case store.TopicLogin:
			p.logins.Ended(n.Detail)
		case store.TopicVectors: // arrives often: once for 64 texts
			wake(embedded)
		case store.TopicRelist:
			p.pool.Relist(n.Key)
		case store.TopicSession:
			if hash, err := hex.DecodeString(n.Detail); p.desk.sessions != nil && n.Key == p.others.me.ID && err == nil && len(hash) == sha256.Size {
				p.desk.sessions.Taken([sha256.Size]byte(hash))
			}
		case store.TopicCallback:
			lazy.Go(func() { p.logins.Answer(n.Detail) }) // the authorization server may answer slowly
		}
		return p.unread(ctx, n.Kind, err)
	})
}

// changedServers queues servers whose lists other replicas have changed, until the loop takes them.
type changedServers struct {
	work chan struct{} // holds one signal

	mu       sync.Mutex // guards versions
	versions map[string]int64
}

func (c *changedServers) put(server string, version int64) {
	c.mu.Lock()
	c.versions[server] = version
	c.mu.Unlock()
	wake(c.work)
}

// run passes the queued servers to the loop until ctx ends.
func (c *changedServers) run(ctx context.Context, changes chan<- upstream.Change) {
	lazilyDo(ctx, 0, c.work, func() {
		c.mu.Lock()
		all := c.versions
		c.versions = map[string]int64{}
		c.mu.Unlock()
		for server, version := range all {
			select {
			case changes <- upstream.Change{Server: server, Followed: true, Version: version}:
			case <-ctx.Done():
				return
			}
		}
	})
}

// unread returns err if it is transient, so that the change is read again. It logs any other error.
func (p *Proxy) unread(ctx context.Context, kind string, err error) error {
	if store.Transient(err) || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("what another replica has changed could not be read", "what", kind, "error", err)
	}
	return nil
}

// attend shares the rate limits and wakes the embedder whenever the set of replicas or their servers change.
func (p *Proxy) attend(ctx context.Context) {
	for {
		_, changed, _ := p.others.leads.Replicas()
		p.loop.soon(ctx, func(context.Context) { p.others.share(p.now.Load().Limits) })
		wake(p.embedder.work)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// recallProvisions reads the tools that owners have provisioned over other replicas. detail is a JSON array of the view
// and the owner; "" means all views and owners.
func (p *Proxy) recallProvisions(ctx context.Context, detail string) (failed error) {
	var of [2]string
	if detail != "" && json.Unmarshal([]byte(detail), &of) != nil {
		return nil
	}
	for view, e := range p.now.Load().endpoints {
		if detail != "" && view != of[0] {
			continue
		}
		owners, err := []string{of[1]}, error(nil)
		if detail == "" {
			owners, err = p.ownersIn(ctx, e)
		}
		for _, owner := range owners {
			if err == nil {
				err = e.gate.Recall(ctx, owner, e.provisions)
			}
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("view %s: %w", view, err))
		}
	}
	return failed
}

// ownersIn returns the owners of provisioned tools in a view that this replica or the store knows.
func (p *Proxy) ownersIn(ctx context.Context, e *endpoint) ([]string, error) {
	stored, err := p.store.Usage().Provisions(ctx, e.view)
	owners := e.gate.Owners()
	for _, one := range stored {
		owners = append(owners, one.Owner)
	}
	slices.Sort(owners)
	return slices.Compact(owners), err
}

// recallLearned reads the uses that all replicas have learned from.
func (p *Proxy) recallLearned(ctx context.Context) error {
	if p.memory == nil {
		return nil
	}
	stored, err := p.store.Usage().Learned(ctx)
	if err == nil {
		p.memory.Recall(usesOf(stored))
	}
	return err
}

// recallCalled reads which tools clients called over other replicas.
func (p *Proxy) recallCalled(ctx context.Context) error {
	for view, e := range p.now.Load().endpoints {
		called, err := p.store.Usage().Called(ctx, view)
		if err != nil {
			return fmt.Errorf("view %s: %w", view, err)
		}
		e.live.Recalled(called)
	}
	return nil
}
