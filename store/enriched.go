package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Enriched is what the owner's model wrote of a tool.
type Enriched struct {
	Hash  string // tool.Def.Hash of the definition that it was written for
	When  string // when to use it
	Tags  []string
	State EnrichedState
}

// EnrichedState is what the owner has decided.
type EnrichedState string

// The states.
const (
	Proposed EnrichedState = "proposed" // nothing yet
	Accepted EnrichedState = "accepted" // it is searched
	Rejected EnrichedState = "rejected" // it is not, nor asked for again
)

// maxEnriched bounds how many definitions are remembered.
const maxEnriched = 50_000

const (
	selectEnriched = `SELECT hash, used_for, tags, state FROM enriched`
	putEnriched    = `INSERT INTO enriched (hash, used_for, tags, state, at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (hash) DO UPDATE SET used_for = excluded.used_for, tags = excluded.tags, state = excluded.state, at = excluded.at`
	boundEnriched = `DELETE FROM enriched WHERE hash IN (SELECT hash FROM enriched ORDER BY at DESC` + after + `$1)`
)

// Enriched returns what was written of tools, by the hash of their definition.
func (s *Store) Enriched(ctx context.Context) (map[string]Enriched, error) {
	out := map[string]Enriched{}
	err := s.each(ctx, func(rows *sql.Rows) error {
		var one Enriched
		var tags []byte
		err := rows.Scan(&one.Hash, &one.When, &tags, &one.State)
		if err == nil {
			err = json.Unmarshal(tags, &one.Tags)
		}
		out[one.Hash] = one
		return err
	}, selectEnriched)
	if err != nil {
		return nil, fmt.Errorf("store: read what was written of tools: %w", err)
	}
	return out, nil
}

// PutEnriched stores what was written of a tool, in place of what was stored. It
// outlives the tool, which may come back. Of more than 50,000 the one put longest ago
// is forgotten.
func (s *Store) PutEnriched(ctx context.Context, one Enriched) error {
	tags, err := json.Marshal(one.Tags)
	if err != nil {
		return fmt.Errorf("store: put what was written of a tool: %w", err)
	}
	err = s.write(ctx, func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, putEnriched, one.Hash, one.When, string(tags), string(one.State), time.Now().UnixNano()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, boundEnriched, maxEnriched)
		return err
	})
	return failed("put what was written of a tool", err)
}

// ForgetEnriched forgets all that was written of tools.
func (s *Store) ForgetEnriched(ctx context.Context) error {
	_, err := run(ctx, s.write, `DELETE FROM enriched`)
	return failed("forget what was written of tools", err)
}
