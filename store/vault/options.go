package vault

import (
	"context"
	"log/slog"
	"time"
)

// Options say where a vault has its key and its locks.
type Options struct {
	// Key is the value of MCPPROXY_VAULT_KEY, see TakeKey; "" for none.
	Key string
	// KeyDir is the folder of the key file, which is made when it is needed: where there
	// is no keyring.
	KeyDir string
	// Locks says how Locked locks. Without a way the rows are in memory, and so are key
	// and locks.
	Locks Locks
	// ReadOnly is for rows that cannot be written: no key is made.
	ReadOnly bool
	// Log is told once where a new key is kept; nil for nobody.
	Log *slog.Logger

	// Of tests:
	ring keyring       // default the keyring of the operating system
	wait time.Duration // how long Locked waits at most; default maxWait
}

// Locks are a way to lock names for all processes with the same rows: one of both, or none.
type Locks struct {
	Dir string // folder of files, one for each name; it need not exist
	// Take locks a name until release, or until the process ends. It waits for it.
	Take func(ctx context.Context, name string) (release func(), err error)
}
