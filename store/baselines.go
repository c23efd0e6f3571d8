package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// baselinesName is a text file beside a SQLite database with the name of each server that has a baseline, one
	// per line. If the database is lost, first lists of these servers are held.
	baselinesName = "toolfinch.baselines"

	// anyServer is the line for an unknown set of servers. It is not a valid server name.
	anyServer = "*"

	maxBaselines = 1 << 20 // bytes of the file
)

// notedBaselines reads the file of baselines in a folder. A missing file has no names.
func notedBaselines(dir string) (servers []string, err error) {
	file, err := os.Open(filepath.Join(dir, baselinesName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxBaselines+1))
	if err == nil && len(text) > maxBaselines {
		err = fmt.Errorf("%s has more than %d bytes", baselinesName, maxBaselines)
	}
	return strings.Split(string(text), "\n"), err
}

// noteBaselines adds servers to the file of baselines in a folder. Several processes may add at once: each adds
// with one write, and names may repeat.
func noteBaselines(dir string, servers ...string) error {
	if len(servers) == 0 {
		return nil
	}
	file, err := os.OpenFile(filepath.Join(dir, baselinesName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, server := range servers {
		fmt.Fprintln(&lines, server)
	}
	_, err = file.Write(lines.Bytes())
	return errors.Join(err, file.Close())
}

// hasBaselines reports whether a folder has the file of baselines, or may have it.
func hasBaselines(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, baselinesName))
	return !errors.Is(err, fs.ErrNotExist)
}

// noteBaselines adds servers to the file beside the database. A failure only costs a warning: the next Open adds
// them.
func (d *database) noteBaselines(servers ...string) {
	if d.path == "" {
		return
	}
	if err := noteBaselines(filepath.Dir(d.path), servers...); err != nil {
		d.log.Warn("if the database is lost, first lists of these servers will count as approved", "servers", strings.Join(servers, ", "), "error", err)
	}
}

// restoreBaselines gives each server that the file in dir names, but that has no baseline in the database, an empty
// baseline: nothing of it is approved. If the file cannot be read, the first list of every server is held.
func (d *database) restoreBaselines(ctx context.Context, dir string) error {
	noted, unread := notedBaselines(dir) // read before the database: a name is noted after its baseline is stored
	d.firstHeld = d.firstHeld || unread != nil || slices.Contains(noted, anyServer)
	stored, err := collect(ctx, d, func(rows *sql.Rows, server *string) error { return rows.Scan(server) }, `SELECT DISTINCT server FROM baselines`)
	if err != nil {
		return fmt.Errorf("store: read baselines: %w", err)
	}
	lost := missing(noted, append(stored, anyServer))
	if len(lost) > 0 {
		if err := d.write(ctx, func(ctx context.Context, tx *txn) error { return emptyBaselines(ctx, tx, lost) }); err != nil {
			return failed("restore baselines", err)
		}
	}
	if d.path == "" {
		return nil
	}
	if unread != nil {
		d.log.Warn("earlier approvals cannot be read: every first list is held until you approve it: toolfinch pins", "error", unread)
		return nil
	}
	if len(lost) > 0 {
		d.log.Warn("approvals are lost with the database: the lists of these servers are held until you approve them: toolfinch pins", "servers", strings.Join(lost, ", "))
	}
	d.noteBaselines(missing(stored, noted)...)
	return nil
}

// emptyBaselines stores baselines in which nothing is approved.
func emptyBaselines(ctx context.Context, tx *txn, servers []string) error {
	for _, server := range servers {
		for _, kind := range pinnedKinds {
			if _, err := tx.ExecContext(ctx, `INSERT INTO baselines (server, kind) VALUES ($1, $2) ON CONFLICT DO NOTHING`, server, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing returns the names that are not in from, each once.
func missing(names, from []string) (left []string) {
	for _, name := range names {
		if name != "" && !slices.Contains(from, name) && !slices.Contains(left, name) {
			left = append(left, name)
		}
	}
	return left
}
