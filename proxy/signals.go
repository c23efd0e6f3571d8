package proxy

import (
	"context"
	"time"

	"toolfinch/internal/leeway"
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
		if !leeway.Wait(ctx, after) {
			return
		}
		select { // drops the signal that arrived during the wait
		case <-work:
		default:
		}
		do()
	}
}
