package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	ring "github.com/zalando/go-keyring"
)

// keyring keeps short texts by name, encrypted while its user is away.
type keyring interface {
	get(ctx context.Context, name string) (string, error)
	set(ctx context.Context, name, text string) error
}

const (
	// keyringName is what the keyring's own program shows.
	keyringName = "toolfinch"
	// keyringPatience bounds one use of the keyring. It may have to ask its user for a
	// password first.
	keyringPatience = 20 * time.Second
	// keyringRest is for how long one that did not answer is not asked again.
	keyringRest = 30 * time.Second
)

// osKeyring is the keyring of the operating system: Keychain, Credential Manager or a
// Secret Service on the session bus.
type osKeyring struct {
	mu     sync.Mutex // guards silent
	silent time.Time  // when it last did not answer
}

var errNoAnswer = errors.New("the keyring does not answer")

func (o *osKeyring) get(ctx context.Context, name string) (text string, err error) {
	err = o.use(ctx, func() error { text, err = ring.Get(keyringName, name); return err })
	return text, err
}

func (o *osKeyring) set(ctx context.Context, name, text string) error {
	return o.use(ctx, func() error { return ring.Set(keyringName, name, text) })
}

// use does something with the keyring within bounded time. The library takes no
// context: what does not answer keeps one goroutine, and is not asked again for a while.
func (o *osKeyring) use(ctx context.Context, do func() error) error {
	if err := reachable(); err != nil {
		return err
	}
	o.mu.Lock()
	silent := o.silent
	o.mu.Unlock()
	if !silent.IsZero() && time.Since(silent) < keyringRest {
		return errNoAnswer
	}
	ctx, cancel := context.WithTimeoutCause(ctx, keyringPatience, errNoAnswer)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			o.mu.Lock()
			o.silent = time.Now()
			o.mu.Unlock()
		}
		return context.Cause(ctx)
	}
}

// reachable says at once that there is no session bus, as on most servers: the library
// would start one.
func reachable() error {
	switch runtime.GOOS {
	case "darwin", "ios", "windows":
		return nil
	}
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return nil
	}
	// The library looks there.
	socket := filepath.Join("/run/user", strconv.Itoa(os.Getuid()), "bus")
	if _, err := os.Stat(socket); err != nil {
		return fmt.Errorf("there is no session bus: %w", ring.ErrUnsupportedPlatform)
	}
	return nil
}
