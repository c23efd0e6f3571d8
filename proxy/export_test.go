package proxy

import (
	"toolfinch/upstream"
	"toolfinch/upstream/conn"
)

// SetPrograms sets what runs in the place of the commands of servers.
func SetPrograms(of func(upstream.Settings) conn.Program) { programs = of }
