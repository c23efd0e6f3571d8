package vault

import (
	"context"
	"log/slog"
	"time"
)

// Options of a vault: its key and its locks.
type Options struct {
	// Key is the value of MCPPROXY_VAULT_KEY, see TakeKey; "" for none.
	Key string
	// KeyDir is the folder of the key file. It is created if there is no keyring.
	KeyDir string
	// Locks locks names for all processes. The zero value means that rows, key and locks are in memory.
	Locks Locks
	// ReadOnly is for rows that cannot be written: no key is made.
	ReadOnly bool
	// Log, if not nil, is told once where a new key is kept.
	Log *slog.Logger

	// For tests:
	ring keyring       // default the keyring of the operating system
	wait time.Duration // how long Locked waits at most; default maxWait
}

// Locks is a way to lock names for all processes with the same rows: Dir, Take, or none.
type Locks struct {
	Dir string // folder of files, one for each name; it need not exist
	// Take waits for the lock of a name, and holds it until release or the end of the process.
	Take func(ctx context.Context, name string) (release func(), err error)
}
