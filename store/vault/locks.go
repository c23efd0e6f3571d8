package vault

import (
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
	// maxWait bounds the wait of Locked: whoever has the lock may wait for a server.
	maxWait = time.Minute
	// lockPause is between two tries to lock a file, which another process has.
	lockPause = 20 * time.Millisecond
)

// ErrLocked is wrapped by the error of Locked when somebody else has a name for too long.
var ErrLocked = errors.New("it is in use, by this or another process, for too long")

func (l Locks) shared() bool { return l.Dir != "" || l.Take != nil }

// locks are the names that are locked.
type locks struct {
	across Locks
	wait   time.Duration

	mu   *sync.Mutex // guards held; never held over I/O
	held map[string]*held
}

// held is one name that this process has locked or waits for.
type held struct {
	turn chan struct{}
	uses int // who has it or waits; guarded by the mutex of locks
}

func newLocks(o Options) locks {
	l := locks{across: o.Locks, wait: o.wait, mu: new(sync.Mutex), held: make(map[string]*held)}
	if l.wait == 0 {
		l.wait = maxWait
	}
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

// file locks the file of a name. The files stay: one that is removed could be locked
// twice.
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

func (l *locks) use(name string) *held {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[name]
	if h == nil {
		h = &held{turn: make(chan struct{}, 1)}
		l.held[name] = h
	}
	h.uses++
	return h
}

func (l *locks) leave(name string, h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.uses--; h.uses == 0 {
		delete(l.held, name)
	}
}
