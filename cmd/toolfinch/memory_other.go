//go:build !linux

package main

import "runtime/debug"

// giveBack returns unused memory to the system.
func giveBack() { debug.FreeOSMemory() }
