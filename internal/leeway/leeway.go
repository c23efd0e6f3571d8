// Package leeway is the time that the program leaves others for what usually takes a moment, where no
// setting says how long. Tests leave more, because what their machine does beside them says nothing about the program.
package leeway

import (
	"sync/atomic"
	"time"
)

var times atomic.Int64

func init() { Extend(1) }

// Of returns how long to wait for what should take usual at most.
func Of(usual time.Duration) time.Duration { return time.Duration(times.Load()) * usual }

// Extend makes all that is waited for from now on so many times as long. Only tests call it.
func Extend(by int) { times.Store(int64(by)) }
