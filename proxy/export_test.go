package proxy

import (
	"toolfinch/upstream"
	"toolfinch/upstream/conn"
)

// WithPrograms sets what runs in the place of the commands of servers.
func WithPrograms(of func(upstream.Settings) conn.Program) Option {
	return func(o *options) { o.programs = of }
}

// PartsOf is how many parts a view has been divided into, each with a catalog of its own.
func PartsOf(v *View) int {
	v.parts.mu.Lock()
	defer v.parts.mu.Unlock()
	return len(v.parts.byClass)
}
