package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"toolfinch/tool"
)

// Bounds of the stored provisions, because no principal removes its provisions.
const (
	maxProvisions     = 100_000 // rows, of all views and owners
	maxOwnProvisions  = 10_000  // rows of one set
	maxProvisionOwner = 2048    // bytes
)

const (
	provisionColumns = `SELECT owner, server, kind, name, until, tokens FROM provisions`
	selectProvisions = provisionColumns + ` WHERE view = $1 AND (until = 0 OR until > $2) ORDER BY owner, id`
	selectProvision  = provisionColumns + ` WHERE view = $1 AND owner = $2 AND (until = 0 OR until > $3) ORDER BY id`
	clearProvisions  = `DELETE FROM provisions WHERE view = $1 AND owner = $2`
	dropProvisions   = `DELETE FROM provisions WHERE until > 0 AND until <= $1`
	addProvision     = `INSERT INTO provisions (view, owner, server, kind, name, until, tokens) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`

	// The oldest sets go as a whole: nobody asked for a part of a set.
	boundProvisions = `
		DELETE FROM provisions WHERE (view, owner) IN (
			SELECT view, owner FROM provisions
			WHERE id <= (SELECT id FROM provisions ORDER BY id DESC LIMIT 1 OFFSET $1))`
)

// ChangeProvisions replaces the tools that an owner may call in a view by the result of f, in its order; an empty set
// removes them. f gets the stored tools that have not expired. f may be called several times; its error is returned,
// and then nothing changes. No other process changes the set meanwhile. The field Owner is ignored; of two tools with
// one ID the first counts. Expired tools of all views and owners are dropped. If all sets together have more than
// 100,000 rows, the sets that were changed longest ago are dropped. A set of more than 10,000 tools, or an owner of
// more than 2,048 bytes, is an error. Times are stored in milliseconds.
func (u *Usage) ChangeProvisions(ctx context.Context, view, owner string, f func(stored []tool.Provisioned) ([]tool.Provisioned, error)) error {
	if len(owner) > maxProvisionOwner {
		return fmt.Errorf("store: put provisions: the name of their owner has %d bytes, more than %d", len(owner), maxProvisionOwner)
	}
	err := u.write(ctx, func(ctx context.Context, tx *txn) error {
		var stored []tool.Provisioned
		err := each(ctx, tx, func(rows *sql.Rows) error {
			var p tool.Provisioned
			err := scanProvision(rows, &p)
			stored = append(stored, p)
			return err
		}, selectProvision, view, owner, time.Now().UnixMilli())
		if err != nil {
			return err
		}
		set, err := f(stored)
		if err != nil {
			return err
		}
		if len(set) > maxOwnProvisions {
			return fmt.Errorf("they are %d, more than %d", len(set), maxOwnProvisions)
		}
		if _, err := tx.ExecContext(ctx, clearProvisions, view, owner); err != nil {
			return err
		}
		if err := addProvisions(ctx, tx, view, owner, set); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, dropProvisions, time.Now().UnixMilli()); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, boundProvisions, maxProvisions)
		return err
	})
	return failed("put provisions", err)
}

func addProvisions(ctx context.Context, tx *txn, view, owner string, set []tool.Provisioned) error {
	add, err := tx.PrepareContext(ctx, addProvision)
	if err != nil {
		return err
	}
	defer add.Close()
	for _, p := range set {
		if _, err := add.ExecContext(ctx, view, owner, p.ID.Server, string(p.ID.Kind), p.ID.Name, millis(p.Until), p.Tokens); err != nil {
			return err
		}
	}
	return nil
}

// Provisions returns the tools that may be called in a view and have not expired, by owner and in the order of each
// set.
func (u *Usage) Provisions(ctx context.Context, view string) ([]tool.Provisioned, error) {
	return u.provisions(ctx, selectProvisions, view, time.Now().UnixMilli())
}

// ProvisionsOf is Provisions for one owner.
func (u *Usage) ProvisionsOf(ctx context.Context, view, owner string) ([]tool.Provisioned, error) {
	return u.provisions(ctx, selectProvision, view, owner, time.Now().UnixMilli())
}

func (u *Usage) provisions(ctx context.Context, query string, args ...any) ([]tool.Provisioned, error) {
	all, err := collect(ctx, u.database, scanProvision, query, args...)
	return all, failed("read provisions", err)
}

func scanProvision(rows *sql.Rows, p *tool.Provisioned) error {
	var until int64
	err := rows.Scan(&p.Owner, &p.ID.Server, &p.ID.Kind, &p.ID.Name, &until, &p.Tokens)
	p.Until = ofMillis(until)
	return err
}
