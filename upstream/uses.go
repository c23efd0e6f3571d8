package upstream

import (
	"context"
	"sync"
)

// uses counts the operations of the pool that use a server, until the server is retired.
type uses struct {
	term   context.Context    // ends when the server is replaced or removed
	resign context.CancelFunc // ends term
	vacant chan struct{}      // closed when the server is retired and unused

	watching sync.WaitGroup // the watch loop, if it runs

	mu      sync.Mutex // guards the fields below; never held over I/O
	count   int
	retired bool // the term has ended
}

func newUses(life context.Context) *uses {
	u := &uses{vacant: make(chan struct{})}
	u.term, u.resign = context.WithCancel(life)
	return u
}

// enter begins a use of the server. It reports false if the server is retired.
func (u *uses) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retired {
		return false
	}
	u.count++
	return true
}

func (u *uses) exit() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count--; u.count == 0 && u.retired {
		close(u.vacant)
	}
}

// retire ends the watch of the server and prevents new uses. It may be called twice.
func (u *uses) retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retired {
		return
	}
	u.retired = true
	u.resign()
	if u.count == 0 {
		close(u.vacant)
	}
}

func (u *uses) isRetired() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.retired
}
