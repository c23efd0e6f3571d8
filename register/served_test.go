package register

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// shows are what Lives serve in tests, by *Live.
var shows sync.Map

// serve makes a Live that serves first until show changes that.
func serve(settings Settings, first Served, log *slog.Logger) *Live {
	now := &atomic.Pointer[Served]{}
	now.Store(&first)
	live := New(settings, now.Load, log)
	shows.Store(live, now)
	return live
}

// show changes what a Live serves. Clients hear of it with Sync.
func show(live *Live, change func(*Served)) {
	found, _ := shows.Load(live)
	now := found.(*atomic.Pointer[Served])
	next := *now.Load()
	change(&next)
	now.Store(&next)
}

// offer shows the same source in another way.
func offer(live *Live, next Served) {
	show(live, func(v *Served) {
		next.Source, next.Offered, next.Instructions = v.Source, v.Offered, v.Instructions
		*v = next
	})
}

// offersAll is all that is offered beside tools and tasks.
var offersAll = Offered{Prompts: true, Resources: true, Subscribe: true, Completions: true, Logging: true}
