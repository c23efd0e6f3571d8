package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"toolfinch/tool"
)

const (
	serverColumns = `SELECT name, era, info, approved_info, instructions, capabilities, interactive, NOT checked, left_out, mended, updated_at FROM servers`
	selectServers = serverColumns + ` ORDER BY name`
	selectServer  = serverColumns + ` WHERE name = $1`

	toolColumns = `SELECT server, kind, name, hash, raw, about FROM tools`
	// The names of kinds sort like tool.Kinds.
	selectTools   = toolColumns + ` ORDER BY server, kind, position`
	selectToolsOf = toolColumns + ` WHERE server = $1 ORDER BY kind, position`
)

// Upstream is an upstream's description of itself at its last listing.
type Upstream struct {
	Name         string          // configured name
	Era          string          // protocol era, "" when unknown
	Info         json.RawMessage // serverInfo as sent; nil when absent
	ApprovedInfo json.RawMessage // Info when its whole list was last approved; nil: never; PutServer sets it
	Instructions string
	Capabilities json.RawMessage // capabilities as sent; nil when unknown
	Interactive  bool            // it has asked a client something
	Unchecked    bool            // its definitions did not go through tool.TakeIn; never true of PutServer's input
	LeftOut      int             // malformed definitions of its last list that are left out
	Mended       int             // malformed definitions that were mended
	UpdatedAt    time.Time       // to the millisecond; zero: now, in PutServer
}

// Diff says what PutServer changed among a server's tools.
type Diff struct {
	Added, Changed, Removed []string // tool names, sorted
	Total                   int      // number of tools now
	Others                  int      // number of prompts, resources and templates now

	Baseline bool       // its first complete list was approved
	Held     []Unpinned // listed but not approved; only with a Review

	Version int64 // version of the server's topic (see Notice) if this call changed it; else 0
}

// PutServer stores a server and replaces its definitions, of every kind, by defs, in order. Of two defs with the
// same kind and name the first counts. Their server is srv, whatever they say. With a review it decides in the same
// transaction which definitions are approved; without a review it approves none. A replica that does not lead the
// server gets a transient error. On an error nothing was stored and the Diff is zero.
func (s *Store) PutServer(ctx context.Context, srv Upstream, defs []*tool.Def, review *Review) (Diff, error) {
	if srv.UpdatedAt.IsZero() {
		srv.UpdatedAt = time.Now()
	}
	if review != nil && s.firstHeld {
		held := *review
		held.First = false
		review = &held
	}
	var diff Diff
	var begun bool
	err := s.write(ctx, func(ctx context.Context, tx *txn) (err error) {
		if err := s.led(ctx, tx, srv.Name); err != nil {
			return err
		}
		begun = false
		if diff, err = putServer(ctx, tx, srv, defs); err == nil && review != nil {
			begun, diff.Held, err = review.list(ctx, tx, srv.Name, len(defs) == 0)
			diff.Baseline = begun && review.First
		}
		if err == nil && tx.postgres {
			err = tx.QueryRowContext(ctx, bumped, TopicServer, srv.Name).Scan(&diff.Version)
		}
		return err
	})
	if err != nil {
		return Diff{}, fmt.Errorf("store: put server %s: %w", srv.Name, err)
	}
	if begun {
		s.noteBaselines(srv.Name)
	}
	return diff, nil
}

func putServer(ctx context.Context, tx *txn, srv Upstream, defs []*tool.Def) (Diff, error) {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO servers (name, era, info, instructions, capabilities, interactive, checked, left_out, mended, updated_at) VALUES ($1, $2, $3, $4, $5, $6, TRUE, $7, $8, $9)
		ON CONFLICT (name) DO UPDATE SET era = excluded.era, info = excluded.info, instructions = excluded.instructions,
			capabilities = excluded.capabilities, interactive = excluded.interactive, checked = TRUE, left_out = excluded.left_out, mended = excluded.mended,
			updated_at = excluded.updated_at`,
		srv.Name, srv.Era, []byte(srv.Info), srv.Instructions, []byte(srv.Capabilities), srv.Interactive, srv.LeftOut, srv.Mended, srv.UpdatedAt.UnixMilli())
	if err != nil {
		return Diff{}, err
	}
	if _, err := tx.ExecContext(ctx, dropFailure, srv.Name); err != nil {
		return Diff{}, err
	}
	old, err := storedDefs(ctx, tx, srv.Name)
	if err != nil {
		return Diff{}, err
	}
	move, err := tx.PrepareContext(ctx, `UPDATE tools SET position = $1, about = $2 WHERE server = $3 AND kind = $4 AND name = $5`)
	if err != nil {
		return Diff{}, err
	}
	defer move.Close()
	change, err := tx.PrepareContext(ctx, `UPDATE tools SET position = $1, hash = $2, raw = $3, about = $4 WHERE server = $5 AND kind = $6 AND name = $7`)
	if err != nil {
		return Diff{}, err
	}
	defer change.Close()
	keep, err := tx.PrepareContext(ctx, keepApproved)
	if err != nil {
		return Diff{}, err
	}
	defer keep.Close()

	var diff Diff
	var added []int   // indexes in defs
	var gone []string // hashes
	seen := make(map[defKey]bool, len(defs))
	for i, def := range defs {
		key := defKey{def.ID.Kind, def.ID.Name}
		if seen[key] {
			continue
		}
		seen[key] = true
		was, known := old[key]
		switch {
		case !known:
			added = append(added, i)
		case was.hash != def.Hash:
			gone = append(gone, was.hash)
			if _, err = keep.ExecContext(ctx, srv.Name, key.kind, key.name); err == nil {
				_, err = change.ExecContext(ctx, i, def.Hash, []byte(def.Raw), def.Group, srv.Name, key.kind, key.name)
			}
		case was.position != i || was.group != def.Group:
			_, err = move.ExecContext(ctx, i, def.Group, srv.Name, key.kind, key.name)
		}
		switch {
		case err != nil:
			return Diff{}, fmt.Errorf("%s %s: %w", key.kind, key.name, err)
		case key.kind != tool.KindTool:
			diff.Others++
			continue
		case !known:
			diff.Added = append(diff.Added, key.name)
		case was.hash != def.Hash:
			diff.Changed = append(diff.Changed, key.name)
		}
		diff.Total++
	}
	if err := addTools(ctx, tx, srv.Name, defs, added); err != nil {
		return Diff{}, err
	}
	for key, was := range old {
		if seen[key] {
			continue
		}
		gone = append(gone, was.hash)
		_, err := keep.ExecContext(ctx, srv.Name, key.kind, key.name)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM tools WHERE server = $1 AND kind = $2 AND name = $3`, srv.Name, key.kind, key.name)
		}
		if err != nil {
			return Diff{}, fmt.Errorf("%s %s: %w", key.kind, key.name, err)
		}
		if key.kind == tool.KindTool {
			diff.Removed = append(diff.Removed, key.name)
		}
	}
	if len(gone) > 0 {
		if err := dropTokens(ctx, tx, gone...); err != nil {
			return Diff{}, err
		}
	}
	slices.Sort(diff.Added)
	slices.Sort(diff.Changed)
	slices.Sort(diff.Removed)
	return diff, nil
}

// defKey identifies a definition within its server.
type defKey struct {
	kind tool.Kind
	name string
}

// addTools stores new definitions; added has their indexes in defs.
func addTools(ctx context.Context, tx *txn, server string, defs []*tool.Def, added []int) error {
	if len(added) == 0 {
		return nil
	}
	columns := []string{"server", "kind", "name", "position", "hash", "raw", "about"}
	return tx.insert(ctx, "tools", columns, func() ([]any, error) {
		if len(added) == 0 {
			return nil, nil
		}
		i := added[0]
		added = added[1:]
		def := defs[i]
		return []any{server, string(def.ID.Kind), def.ID.Name, int64(i), def.Hash, []byte(def.Raw), def.Group}, nil
	})
}

// storedDef is the stored state of a definition.
type storedDef struct {
	hash, group string
	position    int
}

// storedDefs returns the stored state of each definition of a server.
func storedDefs(ctx context.Context, tx *txn, server string) (map[defKey]storedDef, error) {
	out := map[defKey]storedDef{}
	err := each(ctx, tx, func(rows *sql.Rows) error {
		var key defKey
		var as storedDef
		err := rows.Scan(&key.kind, &key.name, &as.hash, &as.position, &as.group)
		out[key] = as
		return err
	}, `SELECT kind, name, hash, position, about FROM tools WHERE server = $1`, server)
	return out, err
}

// Servers returns every stored server by name.
func (s *Store) Servers(ctx context.Context) ([]Upstream, error) {
	var out []Upstream
	err := s.read(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		out, err = readServers(ctx, db, selectServers)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: read servers: %w", err)
	}
	return out, nil
}

func readServers(ctx context.Context, in querier, query string, args ...any) (out []Upstream, err error) {
	err = each(ctx, in, func(rows *sql.Rows) error {
		var srv Upstream
		var info, approved, capabilities []byte
		var updated int64
		if err := rows.Scan(&srv.Name, &srv.Era, &info, &approved, &srv.Instructions, &capabilities, &srv.Interactive, &srv.Unchecked, &srv.LeftOut, &srv.Mended, &updated); err != nil {
			return err
		}
		srv.Info, srv.ApprovedInfo, srv.Capabilities = info, approved, capabilities
		srv.UpdatedAt = time.UnixMilli(updated).UTC()
		out = append(out, srv)
		return nil
	}, query, args...)
	return out, err
}

// Tools returns every stored definition, by server name: first its tools, then its prompts, resources and
// templates, each in the server's order. A row that is damaged on the disk is left out, with a warning in the log.
func (s *Store) Tools(ctx context.Context) ([]*tool.Def, error) {
	var rows []toolRow
	err := s.read(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		rows, err = readTools(ctx, db, selectTools)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: read tools: %w", err)
	}
	return s.parse(rows), nil
}

func readTools(ctx context.Context, in querier, query string, args ...any) (rows []toolRow, err error) {
	err = each(ctx, in, func(r *sql.Rows) error {
		var row toolRow
		err := r.Scan(&row.id.Server, &row.id.Kind, &row.id.Name, &row.hash, &row.raw, &row.group)
		if last := len(rows) - 1; last >= 0 && rows[last].id.Server == row.id.Server {
			row.id.Server = rows[last].id.Server // shares one string per server
		}
		rows = append(rows, row)
		return err
	}, query, args...)
	return rows, err
}

// parse parses stored definitions. It leaves out damaged ones, with a warning each.
func (s *Store) parse(rows []toolRow) []*tool.Def {
	// Parsing takes three times as long as reading, and start-up waits for it.
	defs := make([]*tool.Def, len(rows))
	errs := make([]error, len(rows))
	var group sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		group.Go(func() {
			for i := w; i < len(rows); i += workers {
				defs[i], errs[i] = rows[i].parse()
			}
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			s.log.Warn("a stored definition is left out until its server lists it again",
				"server", rows[i].id.Server, rows[i].id.Kind.String(), rows[i].id.Name, "error", err)
		}
	}
	return slices.DeleteFunc(defs, func(def *tool.Def) bool { return def == nil })
}

type toolRow struct {
	id          tool.ID
	hash, group string
	raw         []byte
}

func (r toolRow) parse() (*tool.Def, error) {
	def, err := tool.ParseStored(r.id.Kind, r.id.Server, r.raw, r.hash)
	if err != nil {
		return nil, err
	}
	if def.ID != r.id || !slices.Contains(tool.Kinds, r.id.Kind) {
		return nil, fmt.Errorf("%w: the definition is not the one that was stored", errDamaged)
	}
	def.Group = r.group
	return def, nil
}

// KeepServers deletes every server that is not in names, with its definitions and its last failure, and returns the deleted names,
// sorted. Their approvals are kept: a server that returns has no first list.
func (s *Store) KeepServers(ctx context.Context, names []string) (removed []string, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *txn) error {
		removed = nil
		var healed []string
		others := func(of *[]string) func(rows *sql.Rows) error {
			return func(rows *sql.Rows) error {
				var name string
				err := rows.Scan(&name)
				if err == nil && !slices.Contains(names, name) {
					*of = append(*of, name)
				}
				return err
			}
		}
		err := each(ctx, tx, others(&removed), `SELECT name FROM servers ORDER BY name`)
		if err == nil {
			err = each(ctx, tx, others(&healed), `SELECT server FROM failures`)
		}
		if err != nil {
			return err
		}
		for _, name := range healed {
			if _, err := tx.ExecContext(ctx, dropFailure, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		for _, name := range removed {
			_, err := tx.ExecContext(ctx, keepAllApproved, name)
			if err == nil {
				_, err = tx.ExecContext(ctx, `DELETE FROM servers WHERE name = $1`, name) // deletes its definitions, too
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return dropTokens(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("store: forget servers: %w", err)
	}
	return removed, nil
}
