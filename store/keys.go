package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"toolfinch/internal/identity"
)

// Keys are the API keys.
type Keys struct{ *database }

// Keys returns the API keys.
func (s *Store) Keys() *Keys { return &Keys{s.database} }

// maxKeys bounds the API keys.
const maxKeys = 10_000

const (
	keyColumns = `SELECT name, hash, view, scopes, groups, created, expires, used FROM keys`
	selectKeys = keyColumns + ` ORDER BY name`
	selectKey  = keyColumns + ` WHERE hash = $1`
	countKeys  = `SELECT count(*), count(*) FILTER (WHERE name = $1) FROM keys`
	addKey     = `INSERT INTO keys (name, hash, view, scopes, groups, created, expires, used) VALUES ($1, $2, $3, $4, $5, $6, $7, 0)`
	dropKey    = `DELETE FROM keys WHERE name = $1`
	useKey     = `UPDATE keys SET used = $1 WHERE hash = $2 AND used < $1`
)

// ErrKeyExists is wrapped by the error of Add for a name that another key has.
var ErrKeyExists = errors.New("there is a key of this name already")

// Add stores an API key. More than 10,000 are an error.
func (k *Keys) Add(ctx context.Context, key identity.Key) error {
	scopes, err := json.Marshal(key.Scopes)
	if err != nil {
		return fmt.Errorf("store: add key: %w", err)
	}
	groups, err := json.Marshal(key.Groups)
	if err != nil {
		return fmt.Errorf("store: add key: %w", err)
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
		_, err := tx.ExecContext(ctx, addKey, key.Name, key.Hash[:], key.View, string(scopes), string(groups), millis(key.Created), millis(key.Expires))
		return err
	})
	return failed("add key", err)
}

// Revoke removes an API key, and reports whether there was one of this name.
func (k *Keys) Revoke(ctx context.Context, name string) (bool, error) {
	n, err := run(ctx, k.write, dropKey, name)
	return n > 0, failed("revoke key", err)
}

// All returns all API keys, by name.
func (k *Keys) All(ctx context.Context) ([]identity.Key, error) { return k.find(ctx, selectKeys) }

// Find returns the API key with a hash, nil where there is none. It may have expired.
func (k *Keys) Find(ctx context.Context, hash [32]byte) (*identity.Key, error) {
	keys, err := k.find(ctx, selectKey, hash[:])
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return &keys[0], nil
}

func (k *Keys) find(ctx context.Context, query string, args ...any) ([]identity.Key, error) {
	all, err := collect(ctx, k.database, func(rows *sql.Rows, key *identity.Key) error {
		var hash, scopes, groups []byte
		var created, expires, used int64
		err := rows.Scan(&key.Name, &hash, &key.View, &scopes, &groups, &created, &expires, &used)
		if err == nil {
			err = errors.Join(json.Unmarshal(scopes, &key.Scopes), json.Unmarshal(groups, &key.Groups))
		}
		if err == nil && len(hash) != len(key.Hash) {
			err = fmt.Errorf("the hash of the key %q has %d bytes", key.Name, len(hash))
		}
		copy(key.Hash[:], hash)
		key.Created, key.Expires, key.Used = ofMillis(created), ofMillis(expires), ofMillis(used)
		return err
	}, query, args...)
	return all, failed("read keys", err)
}

// Used notes when keys were used last, by hash.
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

// millis is how times are stored: 0 is none.
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
