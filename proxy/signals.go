package proxy

import (
	"context"
	"time"
)

// wake tells whoever waits on c that there is work; once is enough.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waited waits, and reports false if ctx ends before.
func waited(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// lazily is how long what nobody waits for may be out of date.
const lazily = 2 * time.Second

// lazilyDo does something a while after it is woken, once for all that woke it meanwhile, until
// ctx ends.
func lazilyDo(ctx context.Context, after time.Duration, work <-chan struct{}, do func()) {
	for {
		select {
		case <-work:
		case <-ctx.Done():
			return
		}
		if !waited(ctx, after) {
			return
		}
		select { // those that came meanwhile
		case <-work:
		default:
		}
		do()
	}
}
