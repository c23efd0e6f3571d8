package proxy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/store"
	"toolfinch/upstream"
)

const (
	maxFailure   = 997         // bytes of a stored reason, before "..."
	failureEvery = time.Minute // how often the same reason is stored again: a server is tried again and again
	// lateAfter is how long a server that was never listed may take to come up before that is stored as a failure. It
	// is stored while the server starts, because an agent may end the process at any time.
	lateAfter = 3 * time.Second
)

// fail stores why a server could not be listed.
func (k *listings) fail(ctx context.Context, server string, why error) error {
	before, now := k.failures[server], upstream.Failure{Reason: reasonOf(server, why), At: time.Now()}
	if k.readOnly || before.Reason == now.Reason && now.At.Sub(before.At) < failureEvery {
		return nil
	}
	k.failures[server] = now
	return k.store.PutFailure(ctx, store.Failure{Server: server, Reason: now.Reason, At: now.At})
}

// reasonOf returns the text of a server's error without its name.
func reasonOf(server string, why error) string {
	return rawjson.Clip(printable.Line(strings.TrimPrefix(why.Error(), "upstream "+server+": ")), maxFailure)
}

// someMayBeLate reports whether a server is starting for the first time.
func (l *loop) someMayBeLate() bool {
	for _, s := range l.now.Load().Config.Servers {
		if l.mayBeLate(s.Name) {
			return true
		}
	}
	return false
}

func (l *loop) mayBeLate(server string) bool {
	return l.known.byServer[server] == nil && !l.known.listedThisRun[server] && !l.late[server]
}

// noteLate stores which servers take long to come up for the first time. Their next list deletes that.
func (l *loop) noteLate(ctx context.Context) {
	now := time.Now()
	for _, s := range l.pool.Health() {
		if !s.State.Starts() || s.Began.IsZero() || now.Sub(s.Began) < lateAfter || !l.mayBeLate(s.Server) {
			continue
		}
		l.late[s.Server] = true
		reason := fmt.Sprintf("it had not come up %s after its start, and may not have been given more time", lateAfter)
		if err := l.store.PutFailure(ctx, store.Failure{Server: s.Server, Reason: reason, At: now}); err != nil && ctx.Err() == nil {
			l.log.Log(ctx, store.Level(err), "not written to the store", "what", "that a server is late", "error", err)
		}
	}
}
