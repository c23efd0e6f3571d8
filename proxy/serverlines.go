package proxy

import (
	"context"

	"toolfinch/proxy/web"
	"toolfinch/upstream"
)

// ServerLines returns the last log lines about a server whose numbers are above after, for the owner. It reports false
// for an unknown server.
func (p *Proxy) ServerLines(server string, after int64) ([]upstream.Line, bool) {
	if !(rest{p}).serves(server) {
		return nil, false
	}
	return p.pool.Lines(server, after)
}

// RestartServer connects to a server again, which starts its process anew, and lists its definitions. It is for the
// owner. The error wraps web.ErrNoServer for an unknown server.
func (p *Proxy) RestartServer(ctx context.Context, server string) (web.Upstream, error) {
	return rest{p}.Reconnect(ctx, server)
}
