// Package vault owns secrets at rest: it seals rows with one key, and keeps that key
// away from them. The rows themselves are the store's, and what the secrets are for is
// their owners' business.
package vault

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// key returns the key of the rows, nil when they have none yet.
func (v *Vault) key(ctx context.Context) (*key, error) {
	note, err := v.note(ctx)
	if err != nil || note == nil {
		return nil, err
	}
	return v.keys.find(ctx, *note)
}

func (v *Vault) note(ctx context.Context) (*keyNote, error) {
	row, err := v.rows.Find(ctx, keyRow)
	if err != nil || row == nil {
		return nil, err
	}
	note := &keyNote{}
	if err := json.Unmarshal(row.Sealed, note); err != nil || len(note.ID) != hex.EncodedLen(idLen) {
		return nil, &KeyError{Why: "which one it is cannot be read"}
	}
	return note, nil
}

// newKey makes the key of the rows, unless another process has made it meanwhile.
func (v *Vault) newKey(ctx context.Context) (made *key, err error) {
	if v.options.ReadOnly {
		return nil, errors.New("there is no key yet, and none is made for reading")
	}
	err = v.Locked(ctx, keyRow, func(ctx context.Context) error {
		made, err = v.key(ctx)
		if made != nil || err != nil {
			return err
		}
		if made, err = v.keys.create(ctx, v.options.Locks.shared()); err != nil {
			return err
		}
		note, err := json.Marshal(made.keyNote)
		if err != nil {
			return err
		}
		return v.rows.Put(ctx, Row{Name: keyRow, Sealed: note, At: time.Now()})
	})
	return made, err
}

// KeyPlace says where the key of the rows is: "" when there is none yet. path is that of
// its file, if it is in one. The error is a *KeyError when it cannot be had.
func (v *Vault) KeyPlace(ctx context.Context) (place, path string, err error) {
	found, err := v.key(ctx)
	if err != nil || found == nil {
		return "", "", err
	}
	switch {
	case v.keys.given != nil:
		return "the variable " + EnvKey, "", nil
	case found.Holder == inKeyring:
		return "the keyring of the operating system", "", nil
	}
	return "a file", v.keys.path(found.ID), nil
}

// Locked runs do while nobody else, in this process or another one, runs something
// under the same name. It waits for at most a minute; the error then wraps ErrLocked.
// The lock ends with the process. do must not call Locked with the same name.
func (v *Vault) Locked(ctx context.Context, name string, do func(context.Context) error) error {
	release, err := v.locks.take(ctx, name)
	if err != nil {
		return fmt.Errorf("vault: lock %s: %w", name, err)
	}
	defer release()
	return do(ctx)
}
