package vault

import (
	"context"
	"errors"
	"sync"
	"time"
)

// FakeRing stands for a keyring that fails when it is told to.
type FakeRing struct {
	mu    sync.Mutex // guards all
	Away  error
	items map[string]string
}

func (f *FakeRing) get(_ context.Context, name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, ok := f.items[name]
	if f.Away == nil && !ok {
		return "", errors.New("no such item")
	}
	return text, f.Away
}

func (f *FakeRing) set(_ context.Context, name, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Away != nil {
		return f.Away
	}
	if f.items == nil {
		f.items = make(map[string]string)
	}
	f.items[name] = text
	return nil
}

// Fail makes the keyring fail with err, or work again with nil.
func (f *FakeRing) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Away = err
}

// Replace puts another text in the place of each item.
func (f *FakeRing) Replace(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.items {
		f.items[name] = text
	}
}

// Empty forgets all items.
func (f *FakeRing) Empty() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items = nil
}

// WithRing returns options with another keyring.
func WithRing(o Options, ring *FakeRing) Options {
	o.ring = ring
	return o
}

// WithWait returns options with another bound of Locked.
func WithWait(o Options, wait time.Duration) Options {
	o.wait = wait
	return o
}

// OSKeyring returns what uses the keyring of the operating system: it puts a text under
// a name and gets it back.
func OSKeyring(patience time.Duration) func(ctx context.Context, name, text string) (string, error) {
	o := &osKeyring{patience: patience}
	return func(ctx context.Context, name, text string) (string, error) {
		if err := o.set(ctx, name, text); err != nil {
			return "", err
		}
		return o.get(ctx, name)
	}
}
