// Package leeway is the time for brief operations of others, where no setting bounds it, and for
// pauses. Tests allow more for operations, because their machine may be busy.
package leeway

import (
	"context"
	"sync/atomic"
	"time"
)

// More is added to every such time, in nanoseconds, in tests. In the program it is 0.
var More atomic.Int64

// more is set by the linker for tests of the built program: -ldflags '-X
// toolfinch/internal/leeway.more=3s'.
var more string

func init() {
	if added, err := time.ParseDuration(more); err == nil {
		More.Store(int64(added))
	}
}

// Of returns the bound for an operation with a usual time.
func Of(usual time.Duration) time.Duration { return usual + time.Duration(More.Load()) }

// Wait waits for pause. It reports false if ctx ends first.
func Wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}
