package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Failure is why a server could not be listed last. It is deleted when the server is listed again.
type Failure struct {
	Server string
	Reason string    // at most 1,000 bytes
	At     time.Time // to the millisecond
}

const (
	maxReason = 1000 // bytes

	selectFailures = `SELECT server, reason, at FROM failures ORDER BY server`
	putFailure     = `INSERT INTO failures (server, reason, at) VALUES ($1, $2, $3)
		ON CONFLICT (server) DO UPDATE SET reason = excluded.reason, at = excluded.at`
	dropFailure = `DELETE FROM failures WHERE server = $1`
)

// Failures returns the last failure of each server that was not listed since, by name.
func (s *Store) Failures(ctx context.Context) ([]Failure, error) {
	all, err := collect(ctx, s.database, func(rows *sql.Rows, f *Failure) error {
		var at int64
		err := rows.Scan(&f.Server, &f.Reason, &at)
		f.At = time.UnixMilli(at).UTC()
		return err
	}, selectFailures)
	return all, failed("read failures", err)
}

// PutFailure stores the last failure of a server. A longer reason is an error.
func (s *Store) PutFailure(ctx context.Context, f Failure) error {
	if len(f.Reason) > maxReason {
		return fmt.Errorf("store: put failure of %s: the reason has %d bytes, more than %d", f.Server, len(f.Reason), maxReason)
	}
	_, err := run(ctx, s.write, putFailure, f.Server, f.Reason, f.At.UnixMilli())
	return failed("put failure of "+f.Server, err)
}
