package proxy

import (
	"context"
	"time"
)

// wake signals on c that there is work. If a signal is pending, it does nothing.
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

// waited waits for pause. It reports false if ctx ends first.
func waited(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// lazily is how long state that nobody waits for may be out of date.
const lazily = 2 * time.Second

// lazilyDo calls do some time after each signal on work until ctx ends. Signals during that time cause no further call.
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
		select { // drops the signal that arrived during the wait
		case <-work:
		default:
		}
		do()
	}
}
