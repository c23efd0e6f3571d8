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

// Subscriptions knows which client wants to hear of which resource, of all Lives
// that serve the same upstreams. An upstream is subscribed to with the first client
// and left with the last. What counts is the server's own URI: clients may know the
// resource by another, which may change when another server lists the same.
type Subscriptions struct {
	change func(ctx context.Context, id tool.ID, on bool) error

	turns sync.Map // server -> chan struct{} that holds one: taken while the upstream answers, so that its subscriptions change in order

	most  *limit.Limit // of each client
	bytes *limit.Limit // of a URI

	mu   sync.Mutex                 // guards what follows; held for look-ups only
	byID map[tool.ID][]subscription // an ID with none is about to be left
	of   map[string]int             // how many a client has, by key
}

// Limits returns the limits of subscriptions.
func (s *Subscriptions) Limits() []*limit.Limit { return []*limit.Limit{s.most, s.bytes} }

// NewSubscriptions returns no subscriptions. change subscribes to a resource of an
// upstream, or unsubscribes; nil: resources cannot be subscribed to.
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

// maxSubscriptions is how many resources a session, or one subscriptions/listen,
// may follow.
const maxSubscriptions = 1000

// maxSubscribed is the longest URI of a subscription, in bytes: it is kept.
const maxSubscribed = 8 << 10

// subscription is one of a session or a listener, to the URI that it named.
type subscription struct{ key, uri string }

const (
	// leaveWithin is how long an upstream may take for each resource that is left, and leaveAllWithin
	// for all that a client leaves.
	leaveWithin, leaveAllWithin = 10 * time.Second, 5 * time.Minute
)

// turn waits for the turn to change the subscriptions of a server, and returns
// what ends it. Without the turn it returns the reason why ctx has ended.
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

// leave ends the subscriptions of key: of the URIs, or all if none is named. Errors
// are ignored: an unreachable upstream holds no subscription.
func (s *Subscriptions) leave(ctx context.Context, key string, uris ...string) {
	last := map[string][]tool.ID{} // by their servers
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

// drop leaves resources of one upstream. One that does not answer is not waited for again.
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

// dropOne leaves a resource, unless somebody has joined meanwhile. If the turn does
// not come in time, it leaves out of turn: nothing is kept for that upstream.
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

// to returns the subscriptions to a resource of a server, and to resources that it
// is a part of, because servers may tell of parts of what was subscribed to. The
// latter have no URI: theirs is not that of the part.
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

// uris returns the URIs of what a client subscribes to.
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
