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

// keyring stores short texts by name, encrypted while its user is away.
type keyring interface {
	get(ctx context.Context, name string) (string, error)
	set(ctx context.Context, name, text string) error
}

const (
	// keyringName is the name that the keyring's own program shows.
	keyringName = "toolfinch"
	// keyringPatience bounds one use of the keyring, which may ask its user for a password first.
	keyringPatience = 20 * time.Second
)

// osKeyring is the keyring of the operating system: Keychain, Credential Manager, or a Secret Service on the
// session bus.
type osKeyring struct {
	patience time.Duration

	mu   sync.Mutex // guards busy; never held over I/O
	busy bool       // the library is at work
}

var errNoAnswer = errors.New("the keyring does not answer")

func (o *osKeyring) get(ctx context.Context, name string) (string, error) {
	return o.use(ctx, func() (string, error) { return ring.Get(keyringName, name) })
}

func (o *osKeyring) set(ctx context.Context, name, text string) error {
	_, err := o.use(ctx, func() (string, error) { return "", ring.Set(keyringName, name, text) })
	return err
}

// use runs do with the keyring within bounded time. The library takes no context: an unanswered call keeps one
// goroutine, and meanwhile the keyring is not used again.
func (o *osKeyring) use(ctx context.Context, do func() (string, error)) (string, error) {
	if err := reachable(); err != nil {
		return "", err
	}
	if !o.begin() {
		return "", errNoAnswer
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := do()
		o.end() // before the waiting caller continues
		answered <- answer{text, err}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, o.patience, errNoAnswer)
	defer cancel()
	select {
	case a := <-answered:
		return a.text, a.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (o *osKeyring) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		return false
	}
	o.busy = true
	return true
}

func (o *osKeyring) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
}

// reachable fails at once without a session bus, as on most servers: the library would start one.
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
