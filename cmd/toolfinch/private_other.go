//go:build !linux

package main

// keepPrivate does nothing: other systems require permission to debug a process.
func keepPrivate() {}
