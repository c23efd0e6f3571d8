package proxy

import (
	"context"

	"toolfinch/store"
	"toolfinch/upstream"
	"toolfinch/upstream/conn"
)

// WithPrograms sets what runs in the place of the commands of servers.
func WithPrograms(of func(upstream.Settings) conn.Program) Option {
	return func(o *options) { o.programs = of }
}

// Failures returns the stored failures of the servers.
func (p *Proxy) Failures(ctx context.Context) ([]store.Failure, error) { return p.store.Failures(ctx) }
