package authserver

import (
	"bytes"
	"context"
	"strings"
	"sync"
)

// Vault is a login.Vault in memory, shared by several processes of a test.
type Vault struct {
	mu    sync.Mutex // guards rows and locks
	rows  map[string][]byte
	locks map[string]*sync.Mutex
}

// NewVault returns an empty vault.
func NewVault() *Vault { return &Vault{rows: map[string][]byte{}, locks: map[string]*sync.Mutex{}} }

// Get implements login.Vault.
func (v *Vault) Get(_ context.Context, name string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return bytes.Clone(v.rows[name]), nil
}

// Put implements login.Vault.
func (v *Vault) Put(_ context.Context, name string, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows[name] = bytes.Clone(value)
	return nil
}

// Delete implements login.Vault.
func (v *Vault) Delete(_ context.Context, name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.rows, name)
	return nil
}

// Names implements login.Vault.
func (v *Vault) Names(_ context.Context, prefix string) (names []string, _ error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.rows {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Locked implements login.Vault.
func (v *Vault) Locked(ctx context.Context, name string, f func(context.Context) error) error {
	v.mu.Lock()
	if v.locks[name] == nil {
		v.locks[name] = new(sync.Mutex)
	}
	lock := v.locks[name]
	v.mu.Unlock()
	lock.Lock()
	defer lock.Unlock()
	return f(ctx)
}
