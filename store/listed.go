package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"toolfinch/tool"
)

// Listed is the stored data of one server.
type Listed struct {
	Upstream
	Defs     []*tool.Def // as Tools returns them
	Unpinned []Unpinned  // as Pins.Unpinned returns them
}

// Listed returns the stored data of a server in one snapshot; nil if there is none.
func (s *Store) Listed(ctx context.Context, server string) (*Listed, error) {
	var all *Listed
	var rows []toolRow
	err := s.read(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		all, rows, err = listed(ctx, db, server)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: read server %s: %w", server, err)
	}
	if all != nil {
		all.Defs = s.parse(rows)
	}
	return all, nil
}

func listed(ctx context.Context, db *sql.DB, server string) (all *Listed, rows []toolRow, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback() // nothing was written
	servers, err := readServers(ctx, tx, selectServer, server)
	if err != nil || len(servers) == 0 {
		return nil, nil, err
	}
	all = &Listed{Upstream: servers[0]}
	rows, err = readTools(ctx, tx, selectToolsOf, server)
	unpinned, unread := unpinnedOf(ctx, tx, server)
	all.Unpinned = unpinned
	return all, rows, errors.Join(err, unread)
}

// Asks records that a stored server asks clients something.
func (s *Store) Asks(ctx context.Context, server string) error {
	_, err := run(ctx, s.write, `UPDATE servers SET interactive = TRUE WHERE name = $1 AND NOT interactive`, server)
	return failed("note that "+server+" asks clients", err)
}
