//go:build !unix

package main

import (
	"context"
	"io"
	"net"
)

// isPrivate returns nil: the folder's access list protects it.
func isPrivate(string) error { return nil }

// isOwn returns nil: the folder's access list protects its sockets.
func isOwn(*net.UnixConn) error { return nil }

// hungUp returns when ctx ends.
func hungUp(ctx context.Context, _ io.Writer) { <-ctx.Done() }
