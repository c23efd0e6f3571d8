package register

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/limit"
	"toolfinch/tool"
)

// Subscriptions has the resource subscriptions of all clients, for all Lives over the same upstreams.
// The first client of a resource subscribes at the upstream, the last one unsubscribes. The key is the
// server's own URI, because a client's URI may change when another server lists the same URI.
type Subscriptions struct {
	change func(ctx context.Context, id tool.ID, on bool) error

	turns sync.Map // server -> chan struct{} of size 1, taken while the upstream answers: its subscriptions change in order

	most  *limit.Limit // of each client
	bytes *limit.Limit // of a URI

	mu   sync.Mutex                 // guards the fields below; held for look-ups only
	byID map[tool.ID][]subscription // an ID without subscriptions is about to be left
	of   map[string]int             // number of a client's subscriptions, by key
}

// Limits returns the limits of subscriptions.
func (s *Subscriptions) Limits() []*limit.Limit { return []*limit.Limit{s.most, s.bytes} }

// NewSubscriptions returns no subscriptions. change subscribes or unsubscribes at the upstream; nil:
// resources cannot be subscribed to.
func NewSubscriptions(change func(ctx context.Context, id tool.ID, on bool) error) *Subscriptions {
	if change == nil {
		change = func(context.Context, tool.ID, bool) error {
			return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "resource subscriptions are not offered"}
		}
	}
	return &Subscriptions{
		change: change,
		most:   limit.New("subscriptions", maxSubscriptions, "subscriptions of this client", "end others first"),
		bytes:  limit.New("subscription_bytes", maxSubscribed, "bytes in the URI of a subscription", "subscribe to a shorter one"),
		byID:   map[tool.ID][]subscription{},
		of:     map[string]int{},
	}
}

// maxSubscriptions bounds the resources of a session, or of one subscriptions/listen.
const maxSubscriptions = 1000

// maxSubscribed bounds the URI of a subscription, in bytes.
const maxSubscribed = 8 << 10

// subscription has the key of a session or listener, and the URI that it named.
type subscription struct{ key, uri string }

const (
	// leaveWithin bounds the wait for an upstream per resource, leaveAllWithin for all resources of a
	// client.
	leaveWithin, leaveAllWithin = 10 * time.Second, 5 * time.Minute
)

// turn waits for the turn to change a server's subscriptions, and returns the function that ends it. If
// ctx ends first, it returns the cause.
func (s *Subscriptions) turn(ctx context.Context, server string) (end func(), err error) {
	turn, _ := s.turns.LoadOrStore(server, make(chan struct{}, 1))
	held := turn.(chan struct{})
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return func() {}, context.Cause(ctx)
	}
}

func (s *Subscriptions) join(ctx context.Context, uri string, id tool.ID, key string) error {
	if len(uri) > maxSubscribed {
		return &tool.RPCError{Code: tool.CodeInvalidParams, Message: s.bytes.Refuse().Error()}
	}
	end, err := s.turn(ctx, id.Server)
	if err != nil {
		return err
	}
	defer end()
	one := subscription{key, uri}
	s.mu.Lock()
	all, known := s.byID[id]
	has := slices.Contains(all, one)
	full := !has && s.of[key] >= maxSubscriptions
	if known && !has && !full {
		s.byID[id] = append(all, one)
		s.count(key, 1)
	}
	s.mu.Unlock()
	switch {
	case full:
		return &tool.RPCError{Code: tool.CodeInternal, Message: s.most.Refuse().Error()}
	case known:
		return nil
	}
	if err := s.change(ctx, id, true); err != nil {
		return err
	}
	s.mu.Lock()
	s.byID[id] = []subscription{one}
	s.count(key, 1)
	s.mu.Unlock()
	return nil
}

// count counts the subscriptions of key; the caller holds the lock.
func (s *Subscriptions) count(key string, n int) {
	if s.of[key] += n; s.of[key] == 0 {
		delete(s.of, key)
	}
	s.most.Count(int64(n))
}

// leave ends the subscriptions of key: of the URIs, or all without any URI. Errors are ignored: an
// unreachable upstream holds no subscription.
func (s *Subscriptions) leave(ctx context.Context, key string, uris ...string) {
	last := map[string][]tool.ID{} // by server
	s.mu.Lock()
	for id, all := range s.byID {
		left := slices.DeleteFunc(all, func(one subscription) bool {
			return one.key == key && (len(uris) == 0 || slices.Contains(uris, one.uri))
		})
		s.count(key, len(left)-len(all))
		if s.byID[id] = left; len(left) == 0 {
			last[id.Server] = append(last[id.Server], id)
		}
	}
	s.mu.Unlock()
	var dropping sync.WaitGroup
	for _, ids := range last {
		dropping.Go(func() { s.drop(ctx, ids) })
	}
	dropping.Wait()
}

// drop unsubscribes from resources of one upstream. After one resource without an answer it waits no
// more.
func (s *Subscriptions) drop(ctx context.Context, ids []tool.ID) {
	ctx, cancel := context.WithTimeout(ctx, leaveAllWithin)
	defer cancel()
	for _, id := range ids {
		err := s.dropOne(ctx, id)
		if _, answered := errors.AsType[*tool.RPCError](err); err != nil && !answered {
			cancel()
		}
	}
}

// dropOne unsubscribes from a resource, unless a client has joined meanwhile. If the turn comes too late,
// it unsubscribes without the turn.
func (s *Subscriptions) dropOne(ctx context.Context, id tool.ID) error {
	waiting, stop := context.WithTimeout(ctx, leeway.Of(leaveWithin))
	defer stop()
	end, _ := s.turn(waiting, id.Server)
	defer end()
	s.mu.Lock()
	all, known := s.byID[id]
	unused := known && len(all) == 0
	if unused {
		delete(s.byID, id)
	}
	s.mu.Unlock()
	if !unused {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(leaveWithin))
	defer cancel()
	return s.change(ctx, id, false)
}

// to returns the subscriptions to a resource of a server and to the resources above it, because servers
// may announce changes of children. A subscription to a resource above has no URI here.
func (s *Subscriptions) to(server, uri string) []subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []subscription
	for id, all := range s.byID {
		switch {
		case id.Server != server:
		case id.Name == uri:
			found = append(found, all...)
		case partOf(uri, id.Name):
			for _, one := range all {
				found = append(found, subscription{key: one.key})
			}
		}
	}
	return found
}

// partOf reports whether a URI is below another.
func partOf(uri, whole string) bool {
	rest, below := strings.CutPrefix(uri, whole)
	return below && rest != "" && (strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// uris returns the URIs that a client subscribes to.
func (s *Subscriptions) uris(key string) (uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[key] == 0 {
		return nil
	}
	for _, all := range s.byID {
		for _, one := range all {
			if one.key == key {
				uris = append(uris, one.uri)
			}
		}
	}
	return uris
}
