package proxy

import (
	"context"
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
