// Package vault owns secrets at rest: it seals rows with one key, and keeps that key
// away from them. The rows themselves are the store's, and what the secrets are for is
// their owners' business.
package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Bounds of one row, in bytes.
const (
	maxName  = 2048
	maxValue = 1 << 20
)

// ErrNotFound is wrapped by the error of Get for a name that has no row.
var ErrNotFound = errors.New("nothing is stored under that name")

// Row is a row as it is stored.
type Row struct {
	Name   string
	Sealed []byte
	At     time.Time // when it was written
}

// Rows are the rows as a store keeps them.
type Rows interface {
	// Find returns the row of that name, nil when there is none.
	Find(ctx context.Context, name string) (*Row, error)
	// Names returns the rows whose names begin with prefix, by name, without
	// what is sealed in them.
	Names(ctx context.Context, prefix string) ([]Row, error)
	// Put writes a row in place of the one of its name.
	Put(ctx context.Context, row Row) error
	// Drop deletes the rows of that name, or with a prefix of "" all rows.
	Drop(ctx context.Context, name string) error
}

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

// Vault seals and opens rows. It is safe for concurrent use, and several processes may
// use one set of rows. The key is taken when it is first needed. All methods wrap a
// *KeyError when it cannot be had; then nothing was changed.
type Vault struct {
	rows    Rows
	options Options
	locks   locks
	keys    keys
}

// Open returns the vault over rows. It touches neither rows nor key. A malformed
// Options.Key is an error.
func Open(rows Rows, options Options) (*Vault, error) {
	v := &Vault{rows: rows, options: options, locks: newLocks(options)}
	var err error
	v.keys, err = newKeys(options)
	return v, err
}

// Get returns what is stored under a name. The error wraps ErrNotFound when that is
// nothing.
func (v *Vault) Get(ctx context.Context, name string) ([]byte, error) {
	row, err := v.rows.Find(ctx, name)
	if err == nil && row == nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("vault: %s: %w", name, err)
	}
	key, err := v.key(ctx)
	if err != nil {
		return nil, fmt.Errorf("vault: %s: %w", name, err)
	}
	value, err := key.open(name, row.Sealed)
	if err != nil {
		return nil, fmt.Errorf("vault: %s: %w", name, err)
	}
	return value, nil
}

// Put stores a value under a name of the form KIND/NAME, in place of what was there.
// Names of more than 2,048 bytes and values of more than 1 MiB are errors.
func (v *Vault) Put(ctx context.Context, name string, value []byte) error {
	switch {
	case !strings.Contains(name, "/"):
		return fmt.Errorf("vault: a name is KIND/NAME, not %q", name)
	case len(name) > maxName:
		return fmt.Errorf("vault: a name has %d bytes, more than %d", len(name), maxName)
	case len(value) > maxValue:
		return fmt.Errorf("vault: %s: the value has %d bytes, more than %d", name, len(value), maxValue)
	}
	key, err := v.key(ctx)
	if key == nil && err == nil {
		key, err = v.newKey(ctx)
	}
	if err != nil {
		return fmt.Errorf("vault: %s: %w", name, err)
	}
	if err := v.rows.Put(ctx, Row{Name: name, Sealed: key.seal(name, value), At: time.Now()}); err != nil {
		return fmt.Errorf("vault: %s: %w", name, err)
	}
	return nil
}

// Delete deletes what is stored under a name. It needs no key. That there was nothing
// is no error.
func (v *Vault) Delete(ctx context.Context, name string) error {
	if !strings.Contains(name, "/") { // also the row of the key
		return nil
	}
	if err := v.rows.Drop(ctx, name); err != nil {
		return fmt.Errorf("vault: %s: %w", name, err)
	}
	return nil
}

// Names returns what is stored under names that begin with prefix, by name; what is
// sealed is left out. It needs no key.
func (v *Vault) Names(ctx context.Context, prefix string) ([]Row, error) {
	rows, err := v.rows.Names(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	var named []Row
	for _, row := range rows {
		if row.Name != keyRow {
			named = append(named, row)
		}
	}
	return named, nil
}

// Reset deletes all rows and what is known of the key, so that the next Put makes a new
// one: for a key that is lost. A key in a keyring or a file stays there.
func (v *Vault) Reset(ctx context.Context) error {
	if err := v.rows.Drop(ctx, ""); err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	return nil
}

// key is a key that seals and opens rows.
type key struct {
	keyNote
	aead cipher.AEAD
}

const (
	layout    = 1 // of a sealed row: this byte, the ID of the key, the nonce and what GCM makes
	idLen     = 8 // bytes
	headerLen = 1 + idLen
)

// newKey returns the key of these 32 bytes, kept where holder says.
func newKey(secret []byte, holder string) *key {
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err) // of another length than 32
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return &key{keyNote{ID: keyID(secret), Holder: holder}, aead}
}

// bound is what a sealed row is bound to beside the key: rows cannot be swapped.
func bound(header []byte, name string) []byte {
	return append(append([]byte("toolfinch vault "), header...), name...)
}

func (k *key) seal(name string, value []byte) []byte {
	id, _ := hex.DecodeString(k.ID)
	header := append([]byte{layout}, id...)
	return k.aead.Seal(header, nil, value, bound(header, name))
}

func (k *key) open(name string, sealed []byte) ([]byte, error) {
	if len(sealed) < headerLen || sealed[0] != layout {
		return nil, errors.New("what is stored is damaged, or a newer version of toolfinch has stored it")
	}
	header := sealed[:headerLen]
	if id := hex.EncodeToString(header[1:]); k == nil || id != k.ID {
		return nil, &KeyError{ID: id, Why: "another key than that of this store has sealed it"}
	}
	value, err := k.aead.Open(nil, nil, sealed[headerLen:], bound(header, name))
	if err != nil {
		return nil, errors.New("what is stored was altered or belongs to another name: store it again")
	}
	return value, nil
}
