//go:build !linux

package main

// keepPrivate does nothing: other systems ask who debugs a process.
func keepPrivate() {}
