//go:build !unix

package proxy

// descriptors returns how many files and connections this process may have open.
func descriptors() int64 { return 1 << 30 }
