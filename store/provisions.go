package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"toolfinch/tool"
)

// Principals are many and forget nothing by themselves, so what is kept of all
// of them is bounded.
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

	// A set goes as a whole: half of one is nothing that anybody asked for.
	boundProvisions = `
		DELETE FROM provisions WHERE (view, owner) IN (
			SELECT view, owner FROM provisions
			WHERE id <= (SELECT id FROM provisions ORDER BY id DESC LIMIT 1 OFFSET $1))`
)

// ChangeProvisions makes what f makes of what the owner may call in the view, and has not expired, what it
// may call, in this order; an empty set removes it. No other process changes it meanwhile. f may be called several
// times; its error is returned, and nothing is changed then. The Owner of each is not
// looked at, and of two with one ID the first counts. What has expired is
// dropped, of all views and owners. Where all sets together would have more than
// 100,000 rows, those changed longest ago go. A set of more than 10,000 and an
// owner of more than 2,048 bytes are errors. Times are stored in milliseconds.
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

// Provisions returns what may be called in a view and has not expired, by owner,
// of each in the order in which it was put.
func (u *Usage) Provisions(ctx context.Context, view string) ([]tool.Provisioned, error) {
	return u.provisions(ctx, selectProvisions, view, time.Now().UnixMilli())
}

// ProvisionsOf is Provisions of one owner.
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
