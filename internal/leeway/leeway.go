// Package leeway is the time that the program leaves others for what usually takes a moment, where no
// setting says how long. Tests leave more, because what their machine does beside them says nothing about the program.
package leeway

import (
	"sync/atomic"
	"time"
)

var more atomic.Int64

// Of returns how long to wait for what should take usual at most.
func Of(usual time.Duration) time.Duration { return usual + time.Duration(more.Load()) }

// Add makes all waits that begin from now on longer by so much than they usually are. Only tests call it.
func Add(d time.Duration) { more.Store(int64(d)) }
