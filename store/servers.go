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
	selectServers = `SELECT name, era, info, instructions, updated_at FROM servers ORDER BY name`
	selectTools   = `SELECT server, name, hash, raw FROM tools ORDER BY server, position`
)

// Server is what an upstream said of itself when it was last listed.
type Server struct {
	Name         string          // configured name
	Era          string          // protocol verdict, "" when unknown
	Info         json.RawMessage // serverInfo as it was sent, nil when absent
	Instructions string
	UpdatedAt    time.Time // kept to the millisecond; the zero time means now in PutServer
}

// Diff is what PutServer changed among a server's tools.
type Diff struct {
	Added, Changed, Removed []string // tool names, sorted
	Total                   int      // tools the server has now
}

// PutServer stores a server and replaces its tools by defs, in their order. Of
// two defs with one name the first counts. Whatever defs say, they belong to
// srv. On an error nothing was stored and the Diff is zero.
func (s *Store) PutServer(ctx context.Context, srv Server, defs []*tool.Def) (Diff, error) {
	if srv.UpdatedAt.IsZero() {
		srv.UpdatedAt = time.Now()
	}
	var diff Diff
	err := s.write(ctx, func(tx *sql.Tx) (err error) {
		diff, err = putServer(ctx, tx, srv, defs)
		return err
	})
	if err != nil {
		return Diff{}, fmt.Errorf("store: put server %s: %w", srv.Name, err)
	}
	return diff, nil
}

func putServer(ctx context.Context, tx *sql.Tx, srv Server, defs []*tool.Def) (Diff, error) {
	now := srv.UpdatedAt.UnixMilli()
	_, err := tx.ExecContext(ctx, `
		INSERT INTO servers (name, era, info, instructions, updated_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET era = excluded.era, info = excluded.info,
			instructions = excluded.instructions, updated_at = excluded.updated_at`,
		srv.Name, srv.Era, []byte(srv.Info), srv.Instructions, now)
	if err != nil {
		return Diff{}, err
	}
	old, err := hashes(ctx, tx, srv.Name)
	if err != nil {
		return Diff{}, err
	}
	// A tool that only moved or was seen again keeps its large row.
	touch, err := tx.PrepareContext(ctx, `UPDATE tools SET position = ?, last_seen = ? WHERE server = ? AND name = ?`)
	if err != nil {
		return Diff{}, err
	}
	defer touch.Close()
	put, err := tx.PrepareContext(ctx, `
		INSERT INTO tools (server, name, position, hash, first_seen, last_seen, raw) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (server, name) DO UPDATE SET position = excluded.position, hash = excluded.hash,
			last_seen = excluded.last_seen, raw = excluded.raw`)
	if err != nil {
		return Diff{}, err
	}
	defer put.Close()

	var diff Diff
	seen := make(map[string]bool, len(defs))
	for i, def := range defs {
		name := def.ID.Name
		if seen[name] {
			continue
		}
		seen[name] = true
		hash, known := old[name]
		if known && hash == def.Hash {
			_, err = touch.ExecContext(ctx, i, now, srv.Name, name)
		} else {
			_, err = put.ExecContext(ctx, srv.Name, name, i, def.Hash, now, now, []byte(def.Raw))
		}
		switch {
		case err != nil:
			return Diff{}, fmt.Errorf("tool %s: %w", name, err)
		case !known:
			diff.Added = append(diff.Added, name)
		case hash != def.Hash:
			diff.Changed = append(diff.Changed, name)
		}
	}
	for name := range old {
		if seen[name] {
			continue
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM tools WHERE server = ? AND name = ?`, srv.Name, name); err != nil {
			return Diff{}, fmt.Errorf("tool %s: %w", name, err)
		}
		diff.Removed = append(diff.Removed, name)
	}
	if len(diff.Changed)+len(diff.Removed) > 0 {
		if err := dropTokens(ctx, tx); err != nil {
			return Diff{}, err
		}
	}
	diff.Total = len(seen)
	slices.Sort(diff.Added)
	slices.Sort(diff.Changed)
	slices.Sort(diff.Removed)
	return diff, nil
}

// hashes returns the hash of each tool of a server by name.
func hashes(ctx context.Context, tx *sql.Tx, server string) (map[string]string, error) {
	rows, err := tx.QueryContext(ctx, `SELECT name, hash FROM tools WHERE server = ?`, server)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, hash string
		if err := rows.Scan(&name, &hash); err != nil {
			return nil, err
		}
		out[name] = hash
	}
	return out, rows.Err()
}

// Servers returns every stored server by name.
func (s *Store) Servers(ctx context.Context) ([]Server, error) {
	var out []Server
	err := s.each(ctx, selectServers, func(rows *sql.Rows) error {
		var srv Server
		var info []byte
		var updated int64
		if err := rows.Scan(&srv.Name, &srv.Era, &info, &srv.Instructions, &updated); err != nil {
			return err
		}
		srv.Info = info
		srv.UpdatedAt = time.UnixMilli(updated).UTC()
		out = append(out, srv)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: read servers: %w", err)
	}
	return out, nil
}

// Tools returns every stored tool, by server name and then in the order the
// server listed them. A row whose definition was damaged on the disk is left
// out, with a warning in the log.
func (s *Store) Tools(ctx context.Context) ([]*tool.Def, error) {
	var rows []toolRow
	err := s.each(ctx, selectTools, func(r *sql.Rows) error {
		var row toolRow
		if err := r.Scan(&row.server, &row.name, &row.hash, &row.raw); err != nil {
			return err
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: read tools: %w", err)
	}
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
			s.log.Warn("a stored tool is left out until its server lists it again",
				"server", rows[i].server, "tool", rows[i].name, "error", err)
		}
	}
	return slices.DeleteFunc(defs, func(def *tool.Def) bool { return def == nil }), nil
}

type toolRow struct {
	server, name, hash string
	raw                []byte
}

func (r toolRow) parse() (*tool.Def, error) {
	def, err := tool.ParseDef(r.server, r.raw)
	if err != nil {
		return nil, err
	}
	if def.Hash != r.hash || def.ID.Name != r.name {
		return nil, fmt.Errorf("%w: the definition is not the one that was stored", errDamaged)
	}
	return def, nil
}

// KeepServers forgets every server that is not named, with its tools, and
// returns whom it forgot, sorted.
func (s *Store) KeepServers(ctx context.Context, names []string) (removed []string, err error) {
	err = s.write(ctx, func(tx *sql.Tx) error {
		removed = nil
		rows, err := tx.QueryContext(ctx, `SELECT name FROM servers ORDER BY name`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			if !slices.Contains(names, name) {
				removed = append(removed, name)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for _, name := range removed {
			if _, err := tx.ExecContext(ctx, `DELETE FROM servers WHERE name = ?`, name); err != nil { // its tools go with it
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

// each calls do with every row of a query. do must not use the store: its one
// connection is taken.
func (s *Store) each(ctx context.Context, query string, do func(*sql.Rows) error) error {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
