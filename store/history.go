package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"toolfinch/tool"
)

// What becomes of a definition.
const (
	PastChanged  = "changed"
	PastRemoved  = "removed"
	PastApproved = "approved"
	PastRejected = "rejected"
)

// Past is what once became of a definition.
type Past struct {
	At   time.Time
	What string // one of the Pasts
	// By is who decided it; "" where the server changed it, or the owner of this program decided.
	By string
	// Was is the definition that was listed until then; nil for what was decided.
	Was json.RawMessage
}

// Servers choose how often they change what: this many entries are kept of each definition, and of
// all that a server has and had.
const (
	maxPastOfOne = 20
	maxPastOfAll = 5000
)

const (
	addPast = `INSERT INTO history (server, kind, name, at, what, who, raw) VALUES ($1, $2, $3, $4, $5, $6, NULL)`

	addPastListed = `INSERT INTO history (server, kind, name, at, what, who, raw)
		SELECT server, kind, name, $4, $5, '', raw FROM tools WHERE server = $1 AND kind = $2 AND name = $3`

	trimPast = `DELETE FROM history WHERE id IN (SELECT id FROM (
		SELECT id, row_number() OVER (PARTITION BY kind, name ORDER BY id DESC) AS of_one, row_number() OVER (ORDER BY id DESC) AS of_all
		FROM history WHERE server = $1) AS numbered WHERE of_one > $2 OR of_all > $3)`
)

// forget drops what is more than is kept of a server's history.
func forget(ctx context.Context, tx *txn, server string) error {
	_, err := tx.ExecContext(ctx, trimPast, server, maxPastOfOne, maxPastOfAll)
	return err
}

// History returns what became of a definition since it was first listed, the latest first: at
// most the last 20, of one whose server changes others a great deal fewer.
func (p *Pins) History(ctx context.Context, id tool.ID) ([]Past, error) {
	all, err := collect(ctx, p.database, func(rows *sql.Rows, one *Past) error {
		var at int64
		var raw []byte
		err := rows.Scan(&at, &one.What, &one.By, &raw)
		one.At, one.Was = time.UnixMilli(at).UTC(), raw
		return err
	}, `SELECT at, what, who, raw FROM history WHERE server = $1 AND kind = $2 AND name = $3 ORDER BY id DESC`, id.Server, id.Kind, id.Name)
	if err != nil {
		return nil, fmt.Errorf("store: read what became of %s: %w", id, err)
	}
	return all, nil
}
