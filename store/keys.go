package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Keys are the API keys.
type Keys struct{ *database }

// Keys returns the API keys.
func (s *Store) Keys() *Keys { return &Keys{s.database} }

const maxKeys = 10_000

const (
	keyColumns = `SELECT name, id, hash, view, scopes, groups, created, expires, used FROM keys`
	selectKeys = keyColumns + ` ORDER BY name`
	selectKey  = keyColumns + ` WHERE hash = $1`
	countKeys  = `SELECT count(*), count(*) FILTER (WHERE name = $1) FROM keys`
	selectName = keyColumns + ` WHERE name = $1`
	addKey     = `INSERT INTO keys (name, id, hash, view, scopes, groups, created, expires, used) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`
	dropKey    = `DELETE FROM keys WHERE id = $1`
	useKey     = `UPDATE keys SET used = $1 WHERE hash = $2 AND used < $1`
)

// ErrKeyExists is wrapped by the error of Add if another key has the name.
var ErrKeyExists = errors.New("there is a key of this name already")

// Add stores an API key. It fails if there are 10,000 keys already.
func (k *Keys) Add(ctx context.Context, key identity.Key) error {
	scopes, err := json.Marshal(key.Scopes)
	if err != nil {
		return fmt.Errorf("store: add key: %w", err)
	}
	groups, err := json.Marshal(key.Groups)
	if err != nil {
		return fmt.Errorf("store: add key: %w", err)
	}
	if key.ID == "" {
		return errors.New("store: add key: it has no ID")
	}
	err = k.write(ctx, func(ctx context.Context, tx *txn) error {
		var all, same int
		if err := tx.QueryRowContext(ctx, countKeys, key.Name).Scan(&all, &same); err != nil {
			return err
		}
		switch {
		case same > 0:
			return ErrKeyExists
		case all >= maxKeys:
			return fmt.Errorf("there are %d keys, which is the limit: revoke some", all)
		}
		_, err := tx.ExecContext(ctx, addKey, key.Name, key.ID, key.Hash[:], key.View, string(scopes), string(groups), millis(key.Created), millis(key.Expires))
		return err
	})
	return failed("add key", err)
}

// Revoke removes an API key, and the data of its principal except logins. It returns the key, or nil if no key has
// the name.
func (k *Keys) Revoke(ctx context.Context, name string) (revoked *identity.Key, err error) {
	err = k.write(ctx, func(ctx context.Context, tx *txn) error {
		revoked = nil
		err := each(ctx, tx, func(rows *sql.Rows) error {
			revoked = &identity.Key{}
			return scanKey(rows, revoked)
		}, selectName, name)
		if err != nil || revoked == nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, dropKey, revoked.ID); err != nil {
			return err
		}
		return forget(ctx, tx, revoked.ID)
	})
	if err != nil {
		return nil, failed("revoke key", err)
	}
	return revoked, nil
}

// Sweep drops the data of revoked and expired keys. A process that was writing when a key was revoked may have added
// data afterwards.
func (k *Keys) Sweep(ctx context.Context, now time.Time) error {
	ofKeys := identity.From(identity.KeySource, "%")
	gone, err := collect(ctx, k.database, func(rows *sql.Rows, id *string) error { return rows.Scan(id) },
		selectGone, ofKeys, millis(now), tool.PrincipalOwner(ofKeys), len(tool.PrincipalOwner(""))+1)
	// LIKE of SQLite ignores case, and the name Key|x is nobody's key.
	gone = slices.DeleteFunc(gone, func(id string) bool { return !identity.Of(identity.KeySource, id) })
	if err == nil && len(gone) > 0 {
		err = k.write(ctx, func(ctx context.Context, tx *txn) error {
			for _, id := range gone {
				if err := forget(ctx, tx, id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return failed("drop what revoked keys had", err)
}

// Gone returns the principals of keys that were revoked or have expired. Collect the principals before the call, so
// that it does not return a key that was made meanwhile.
func (k *Keys) Gone(ctx context.Context, principals []string, now time.Time) (gone []string, err error) {
	keys, err := k.All(ctx)
	if err != nil {
		return nil, err
	}
	present := map[string]bool{}
	for _, key := range keys {
		present[key.ID] = !key.Expired(now)
	}
	return slices.DeleteFunc(slices.Clone(principals), func(id string) bool { return !identity.Of(identity.KeySource, id) || present[id] }), nil
}

// All returns all API keys, by name.
func (k *Keys) All(ctx context.Context) ([]identity.Key, error) { return k.find(ctx, selectKeys) }

// Find returns the API key with a hash, or nil. The key may have expired.
func (k *Keys) Find(ctx context.Context, hash [32]byte) (*identity.Key, error) {
	keys, err := k.find(ctx, selectKey, hash[:])
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return &keys[0], nil
}

func (k *Keys) find(ctx context.Context, query string, args ...any) ([]identity.Key, error) {
	all, err := collect(ctx, k.database, scanKey, query, args...)
	return all, failed("read keys", err)
}

func scanKey(rows *sql.Rows, key *identity.Key) error {
	var hash, scopes, groups []byte
	var created, expires, used int64
	err := rows.Scan(&key.Name, &key.ID, &hash, &key.View, &scopes, &groups, &created, &expires, &used)
	if err == nil {
		err = errors.Join(json.Unmarshal(scopes, &key.Scopes), json.Unmarshal(groups, &key.Groups))
	}
	if err == nil && len(hash) != len(key.Hash) {
		err = fmt.Errorf("the hash of the key %q has %d bytes", key.Name, len(hash))
	}
	copy(key.Hash[:], hash)
	key.Created, key.Expires, key.Used = ofMillis(created), ofMillis(expires), ofMillis(used)
	return err
}

// Used stores when keys were used last, by hash.
func (k *Keys) Used(ctx context.Context, used map[[32]byte]time.Time) error {
	err := k.write(ctx, func(ctx context.Context, tx *txn) error {
		for hash, at := range used {
			if _, err := tx.ExecContext(ctx, useKey, millis(at), hash[:]); err != nil {
				return err
			}
		}
		return nil
	})
	return failed("note use of keys", err)
}

// millis returns a time as it is stored: in milliseconds, 0 for none.
func millis(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return max(at.UnixMilli(), 1)
}

func ofMillis(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(at).UTC()
}
