// Package leeway is the time that the program leaves others for what usually takes a moment, where no
// setting says how long. Tests leave more, because what their machine does beside them says nothing about the program.
package leeway

import (
	"sync/atomic"
	"time"
)

// More is what tests add to every such time, in nanoseconds. In the program it is 0.
var More atomic.Int64

// more is set by the linker where the built program is tested: -ldflags '-X toolfinch/internal/leeway.more=3s'.
var more string

func init() {
	if added, err := time.ParseDuration(more); err == nil {
		More.Store(int64(added))
	}
}

// Of returns how long to wait for something that should not take longer than usual.
func Of(usual time.Duration) time.Duration { return usual + time.Duration(More.Load()) }
