package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"toolfinch/tool"
)

// Pins are the approvals of servers' definitions.
type Pins struct{ *database }

// Pins returns the approvals.
func (s *Store) Pins() *Pins { return &Pins{s.database} }

// pinnedKinds are the kinds that need approval. Resources do not: their lists change with every file.
var pinnedKinds = []tool.Kind{tool.KindTool, tool.KindPrompt, tool.KindTemplate, tool.KindSkill, tool.KindInstructions}

// Pinned reports whether definitions of a kind must be approved before they are served.
func Pinned(kind tool.Kind) bool { return slices.Contains(pinnedKinds, kind) }

// Unpinned is a definition, or the instructions of a server, whose listed form is not approved.
type Unpinned struct {
	ID   tool.ID
	Hash string          // of the listed form: hex SHA-256 of Raw
	Raw  json.RawMessage // the listed form; of instructions the text
	// Approved is the last approved form; nil if there is none.
	Approved json.RawMessage
	Rejected string // the mark of Reject; "" if not rejected
}

// Review says how the list of a server is approved.
type Review struct {
	// First approves the first complete list: it is the baseline.
	First bool
	// Unheard are kinds whose listing failed. They get no baseline.
	Unheard []tool.Kind
	// Forget deletes approvals of definitions that are gone: a server may list ever new names.
	Forget bool
	// Approve reports whether a definition that is not approved is approved now. It must not use the store.
	Approve func(Unpinned) bool
}

const (
	// keepAllApproved copies the approved definitions of a server before its rows are deleted.
	keepAllApproved = `UPDATE pins SET raw = (SELECT t.raw FROM tools t WHERE t.server = pins.server AND t.kind = pins.kind AND t.name = pins.name AND t.hash = pins.hash)
		WHERE raw IS NULL AND server = $1`

	// keepApproved copies an approved definition before another replaces it.
	keepApproved = keepAllApproved + ` AND kind = $2 AND name = $3`

	selectUnpinned = `SELECT t.server, t.kind, t.name, t.hash, t.raw, p.raw, COALESCE(p.rejected, '')
		FROM tools t JOIN baselines b ON b.server = t.server AND b.kind = t.kind
		LEFT JOIN pins p ON p.server = t.server AND p.kind = t.kind AND p.name = t.name
		WHERE p.hash IS DISTINCT FROM t.hash`
	inOrder = ` ORDER BY t.server, t.kind, t.position`

	selectInstructions = `SELECT s.name, b.kind, b.kind, '', s.instructions, p.raw, COALESCE(p.rejected, '')
		FROM servers s JOIN baselines b ON b.server = s.name AND b.kind = 'instructions'
		LEFT JOIN pins p ON p.server = s.name AND p.kind = b.kind
		WHERE s.instructions <> ''`

	approveListed = `INSERT INTO pins (server, kind, name, hash) VALUES ($1, $2, $3, $4)
		ON CONFLICT (server, kind, name) DO UPDATE SET hash = excluded.hash, raw = NULL, rejected = ''`

	approveListedKind = `INSERT INTO pins (server, kind, name, hash) SELECT server, kind, name, hash FROM tools WHERE server = $1 AND kind = $2
		ON CONFLICT (server, kind, name) DO UPDATE SET hash = excluded.hash, raw = NULL, rejected = ''`

	approveText = `INSERT INTO pins (server, kind, name, hash, raw) VALUES ($1, $2, $3, '', $4)
		ON CONFLICT (server, kind, name) DO UPDATE SET raw = excluded.raw, rejected = ''`

	rejectListed = `INSERT INTO pins (server, kind, name, hash, rejected) VALUES ($1, $2, $3, '', $4)
		ON CONFLICT (server, kind, name) DO UPDATE SET rejected = excluded.rejected`

	forgetGone = `DELETE FROM pins WHERE server = $1 AND kind <> 'instructions'
		AND NOT EXISTS (SELECT 1 FROM tools t WHERE t.server = pins.server AND t.kind = pins.kind AND t.name = pins.name)`

	allApproved = `UPDATE servers SET approved_info = info WHERE name = $1`
)

// list approves the part of the stored list that the review allows, and returns the rest. begun reports whether the
// server got a baseline; an empty list is none.
func (r *Review) list(ctx context.Context, tx *txn, server string, empty bool) (begun bool, held []Unpinned, err error) {
	if !empty {
		if begun, err = r.begin(ctx, tx, server); err != nil {
			return false, nil, err
		}
	}
	unpinned, err := unpinnedOf(ctx, tx, server)
	if err != nil {
		return false, nil, err
	}
	for _, u := range unpinned {
		if !r.Approve(u) {
			held = append(held, u)
		} else if err := approve(ctx, tx, u); err != nil {
			return false, nil, err
		}
	}
	if len(held) == 0 {
		_, err = tx.ExecContext(ctx, allApproved, server)
	}
	if r.Forget && err == nil {
		_, err = tx.ExecContext(ctx, forgetGone, server)
	}
	return begun, held, err
}

// begin makes the stored list the baseline of the kinds without one.
func (r *Review) begin(ctx context.Context, tx *txn, server string) (begun bool, err error) {
	var known []tool.Kind
	err = each(ctx, tx, func(rows *sql.Rows) error {
		var kind tool.Kind
		err := rows.Scan(&kind)
		known = append(known, kind)
		return err
	}, `SELECT kind FROM baselines WHERE server = $1`, server)
	if err != nil {
		return false, err
	}
	for _, kind := range pinnedKinds {
		if slices.Contains(known, kind) || slices.Contains(r.Unheard, kind) {
			continue
		}
		begun = true
		_, err := tx.ExecContext(ctx, `INSERT INTO baselines (server, kind) VALUES ($1, $2)`, server, kind)
		if err == nil && r.First {
			err = approveKind(ctx, tx, server, kind)
		}
		if err != nil {
			return false, fmt.Errorf("baseline of %s: %w", kind, err)
		}
	}
	return begun, nil
}

// approveKind approves all stored definitions of a kind.
func approveKind(ctx context.Context, tx *txn, server string, kind tool.Kind) error {
	if kind != tool.KindInstructions {
		_, err := tx.ExecContext(ctx, approveListedKind, server, kind)
		return err
	}
	var text []byte
	err := tx.QueryRowContext(ctx, `SELECT instructions FROM servers WHERE name = $1`, server).Scan(&text)
	if err == nil && len(text) > 0 {
		_, err = tx.ExecContext(ctx, approveText, server, kind, string(kind), text)
	}
	return err
}

func approve(ctx context.Context, tx *txn, u Unpinned) (err error) {
	if u.ID.Kind == tool.KindInstructions {
		_, err = tx.ExecContext(ctx, approveText, u.ID.Server, u.ID.Kind, u.ID.Name, []byte(u.Raw))
	} else {
		_, err = tx.ExecContext(ctx, approveListed, u.ID.Server, u.ID.Kind, u.ID.Name, u.Hash)
	}
	if err != nil {
		return fmt.Errorf("approve %s: %w", u.ID, err)
	}
	return nil
}

// Unpinned returns the stored definitions and instructions that are not approved, by server: first definitions in
// the order of Tools, then instructions.
func (p *Pins) Unpinned(ctx context.Context) ([]Unpinned, error) {
	var all []Unpinned
	err := p.read(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		all, err = unpinnedOf(ctx, db, "")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: read what is not approved: %w", err)
	}
	slices.SortStableFunc(all, func(a, b Unpinned) int { return cmp.Compare(a.ID.Server, b.ID.Server) })
	return all, nil
}

// unpinnedOf is Unpinned of one server; "" for all.
func unpinnedOf(ctx context.Context, in querier, server string) (all []Unpinned, err error) {
	queries, args := []string{selectUnpinned + inOrder, selectInstructions}, []any{}
	if server != "" {
		queries, args = []string{selectUnpinned + ` AND t.server = $1` + inOrder, selectInstructions + ` AND s.name = $1`}, []any{server}
	}
	for _, query := range queries {
		err := each(ctx, in, func(rows *sql.Rows) error {
			var u Unpinned
			var raw, approved []byte
			err := rows.Scan(&u.ID.Server, &u.ID.Kind, &u.ID.Name, &u.Hash, &raw, &approved, &u.Rejected)
			u.Raw, u.Approved = raw, approved
			if u.ID.Kind == tool.KindInstructions {
				if bytes.Equal(raw, approved) {
					return err
				}
				u.Hash = hashOf(raw)
			}
			all = append(all, u)
			return err
		}, query, args...)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func hashOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Compare is Unpinned for a list that is not stored. first says that a first list is approved. It writes nothing.
func (p *Pins) Compare(ctx context.Context, server string, defs []*tool.Def, instructions string, first bool) ([]Unpinned, error) {
	first = first && !p.firstHeld
	pins, kinds := map[tool.ID]Unpinned{}, map[tool.Kind]bool{}
	err := errors.Join(
		p.each(ctx, func(rows *sql.Rows) error {
			var kind tool.Kind
			err := rows.Scan(&kind)
			kinds[kind] = true
			return err
		}, `SELECT kind FROM baselines WHERE server = $1`, server),
		p.each(ctx, func(rows *sql.Rows) error {
			p := Unpinned{ID: tool.ID{Server: server}}
			var raw []byte
			err := rows.Scan(&p.ID.Kind, &p.ID.Name, &p.Hash, &raw, &p.Rejected)
			p.Approved = raw
			pins[p.ID] = p
			return err
		}, `SELECT p.kind, p.name, p.hash, COALESCE(p.raw, t.raw), p.rejected FROM pins p
			LEFT JOIN tools t ON t.server = p.server AND t.kind = p.kind AND t.name = p.name AND t.hash = p.hash WHERE p.server = $1`, server))
	if err != nil {
		return nil, fmt.Errorf("store: read what is approved of %s: %w", server, err)
	}
	var all []Unpinned
	for _, def := range defs {
		id := tool.ID{Server: server, Kind: def.ID.Kind, Name: def.ID.Name}
		p := pins[id]
		if Pinned(id.Kind) && (kinds[id.Kind] || !first) && p.Hash != def.Hash {
			all = append(all, Unpinned{ID: id, Hash: def.Hash, Raw: def.Raw, Approved: p.Approved, Rejected: p.Rejected})
		}
	}
	u := UnpinnedText(server, instructions, nil)
	if p := pins[u.ID]; instructions != "" && (kinds[u.ID.Kind] || !first) && string(p.Approved) != instructions {
		u.Approved, u.Rejected = p.Approved, p.Rejected
		all = append(all, u)
	}
	return all, nil
}

// UnpinnedText returns the instructions of a server as an Unpinned.
func UnpinnedText(server, instructions string, approved []byte) Unpinned {
	id := tool.ID{Server: server, Kind: tool.KindInstructions, Name: string(tool.KindInstructions)}
	return Unpinned{ID: id, Hash: hashOf([]byte(instructions)), Raw: json.RawMessage(instructions), Approved: approved}
}

// ErrStale is wrapped by the error of Approve and Reject if the server's list has changed since the decision.
var ErrStale = errors.New("it has changed again")

// Approve approves the listed forms, if each still has the hash that all says; else none.
func (p *Pins) Approve(ctx context.Context, all []Unpinned) error {
	return p.decide(ctx, "approved", all, func(ctx context.Context, tx *txn, u Unpinned) error { return approve(ctx, tx, u) })
}

// Reject stores each mark in Rejected, if each listed form still has the hash that all says; else none.
func (p *Pins) Reject(ctx context.Context, all []Unpinned) error {
	return p.decide(ctx, "rejected", all, func(ctx context.Context, tx *txn, u Unpinned) error {
		_, err := tx.ExecContext(ctx, rejectListed, u.ID.Server, u.ID.Kind, u.ID.Name, u.Rejected)
		return err
	})
}

func (p *Pins) decide(ctx context.Context, what string, all []Unpinned, do func(context.Context, *txn, Unpinned) error) error {
	err := p.write(ctx, func(ctx context.Context, tx *txn) error {
		listed := map[string]map[tool.ID]string{} // hashes by server
		for _, u := range all {
			if listed[u.ID.Server] == nil {
				unpinned, err := unpinnedOf(ctx, tx, u.ID.Server)
				if err != nil {
					return err
				}
				hashes := map[tool.ID]string{}
				for _, now := range unpinned {
					hashes[now.ID] = now.Hash
				}
				listed[u.ID.Server] = hashes
			}
			if listed[u.ID.Server][u.ID] != u.Hash {
				return fmt.Errorf("%s: %w", u.ID, ErrStale)
			}
			if err := do(ctx, tx, u); err != nil {
				return err
			}
		}
		for server := range listed {
			left, err := unpinnedOf(ctx, tx, server)
			if err == nil && len(left) == 0 {
				_, err = tx.ExecContext(ctx, allApproved, server)
			}
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `UPDATE decisions SET n = n + 1`)
		return err
	})
	return failed("store what is "+what, err)
}

// Decisions counts the calls of Approve and Reject of all processes: when it has grown, Unpinned may have changed.
func (p *Pins) Decisions(ctx context.Context) (n int64, err error) {
	if err := p.row(ctx, []any{&n}, `SELECT n FROM decisions`); err != nil {
		return 0, fmt.Errorf("store: read how much was decided: %w", err)
	}
	return n, nil
}
