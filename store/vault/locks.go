package vault

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

const (
	// maxWait bounds the wait of Locked: the holder of the lock may wait for a server.
	maxWait = time.Minute
	// lockPause is the pause between two tries to lock a file.
	lockPause = 20 * time.Millisecond
)

// ErrLocked is wrapped by the error of Locked if a name stays locked for too long.
var ErrLocked = errors.New("the name stays locked, by this or another process, for too long")

func (l Locks) shared() bool { return l.Dir != "" || l.Take != nil }

// locks holds the locked names.
type locks struct {
	across Locks
	wait   time.Duration

	mu    *sync.Mutex // guards names; never held over I/O
	names map[string]*nameLock
}

// nameLock is a name that this process has locked or waits for.
type nameLock struct {
	turn chan struct{}
	uses int // number of holders and waiters; guarded by the mutex of locks
}

func newLocks(o Options) locks {
	l := locks{across: o.Locks, wait: o.wait, mu: new(sync.Mutex), names: make(map[string]*nameLock)}
	l.wait = cmp.Or(l.wait, maxWait)
	return l
}

func (l *locks) take(ctx context.Context, name string) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.wait, ErrLocked)
	defer cancel()
	h := l.use(name)
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		l.leave(name, h)
		return nil, context.Cause(ctx)
	}
	give := func() {
		<-h.turn
		l.leave(name, h)
	}
	across, err := l.takeAcross(ctx, name)
	if err != nil {
		give()
		return nil, err
	}
	return func() {
		across()
		give()
	}, nil
}

func (l *locks) takeAcross(ctx context.Context, name string) (release func(), err error) {
	switch {
	case l.across.Take != nil:
		release, err = l.across.Take(ctx, name)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return release, err
	case l.across.Dir == "":
		return func() {}, nil
	}
	file, err := l.file(ctx, name)
	if err != nil {
		return nil, err
	}
	return func() { _ = file.Close() }, nil // unlocks
}

// file locks the file of a name. Files are never removed: a removed file could be locked twice.
func (l *locks) file(ctx context.Context, name string) (*flock.Flock, error) {
	if err := os.MkdirAll(l.across.Dir, 0o700); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(name))
	file := flock.New(filepath.Join(l.across.Dir, hex.EncodeToString(sum[:16])), flock.SetPermissions(0o600))
	locked, err := file.TryLockContext(ctx, lockPause)
	if locked {
		return file, nil
	}
	_ = file.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, err
}

func (l *locks) use(name string) *nameLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.names[name]
	if h == nil {
		h = &nameLock{turn: make(chan struct{}, 1)}
		l.names[name] = h
	}
	h.uses++
	return h
}

func (l *locks) leave(name string, h *nameLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.uses--; h.uses == 0 {
		delete(l.names, name)
	}
}
