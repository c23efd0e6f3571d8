package proxy

import (
	"toolfinch/upstream"
	"toolfinch/upstream/conn"
)

// WithPrograms sets what runs in the place of the commands of servers.
func WithPrograms(of func(upstream.Settings) conn.Program) Option {
	return func(o *options) { o.programs = of }
}
