//go:build !linux

package main

import "runtime/debug"

// giveBack gives the system back what is not in use.
func giveBack() { debug.FreeOSMemory() }
