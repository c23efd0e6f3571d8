package upstream

import (
	"context"
	"errors"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// subscribe subscribes to a resource over the present and all later connections, or ends the
// subscription.
func (s *member) subscribe(ctx context.Context, uri string, on bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.Load().call, ErrTimeout)
	defer cancel()
	if on && s.perUser() { // the subscription would use the login of the proxy's owner
		return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the server has no subscriptions: each user has a login of their own"}
	}
	c, err := s.main.current(), error(nil)
	if c == nil && on {
		c, err = s.main.connect(ctx)
	}
	if c != nil && on && string(rawjson.Member(rawjson.Member(c.Capabilities, "resources"), "subscribe")) != "true" {
		return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the server has no subscriptions to resources"}
	}
	changed, tooMany := s.subscriptions.set(uri, on)
	if tooMany != nil {
		return tooMany
	}
	if err != nil {
		s.log.Debug("a subscription waits for the upstream", "error", conn.Plain(err))
	}
	if side := s.sharing.commonProcess(); side != nil && changed {
		if err := side.subscribe(ctx, uri, on); err != nil {
			s.log.Debug("the connection of legacy clients has no such subscription", "uri", uri, "error", conn.Plain(err))
		}
	}
	if c == nil || !changed {
		return nil // a later connection begins with all subscriptions
	}
	switch {
	case c.Era == EraLegacy:
		err = c.subscribe(ctx, uri, on)
	case on:
		err = c.listening.confirmed(ctx, c.listening.again())
	default: // the old subscription may stay a moment, so several changes become one request
		c.listening.again()
	}
	rpc, refused := errors.AsType[*tool.RPCError](err)
	switch {
	case err == nil:
		return nil
	case refused:
		if on {
			_, _ = s.subscriptions.set(uri, false)
		}
		return rpc
	case c.failed(err), c.Service.Err() != nil:
		return nil // the next connection begins with the subscription
	}
	op := "subscribe "
	if !on {
		op = "unsubscribe "
	}
	return &Error{Server: s.settings.Name, Op: op + uri, Err: conn.Plain(err)}
}
