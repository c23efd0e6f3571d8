// Package store owns all durable data: servers and their definitions, approvals, token counts, index segments,
// vectors, what is learned from use, provisioned tools, savings, sealed secrets, API keys and, for a while, large
// results. It is the only package of the program that speaks SQL. It never dials an upstream, and never decides
// what is searched or shown. Nearly all of its data can be learned again, so only a database of a newer version
// keeps the program from starting.
package store

import (
	"time"
)

const (
	fileName = "toolfinch.db"
	lockName = "toolfinch.lock"
)

// Store is an open database. Its methods are safe for concurrent use, also by several processes; each waits at most
// 5 s for another writer. A method that fails has changed nothing, and the store stays usable: a full disk or a
// lock of another process can pass.
//
// Store itself has servers, their definitions, and what is computed from these. Pins, Usage, Outputs, Keys, Sealed,
// Replicas and Sessions are further types over the same database, with the same promises.
type Store struct{ *database }

// Durable reports whether the store is a file or a PostgreSQL database that is open for writing. If not, Close
// discards what was written.
func (s *Store) Durable() bool { return s.path != "" || s.remote != nil && !s.readOnly }

// Health returns a *Away while PostgreSQL does not answer, else nil. It does no I/O: its answer is at most a few
// seconds old.
func (s *Store) Health() *Away {
	if s.remote == nil {
		return nil
	}
	return s.remote.away.Load()
}

// Trouble is Health, and also returns a *Away while PostgreSQL answers but stores nothing.
func (s *Store) Trouble() *Away {
	if away := s.Health(); away != nil || s.remote == nil {
		return away
	}
	if r := s.remote.refused.Load(); r != nil && time.Since(r.last) < refusedFor {
		return &Away{Since: r.since, Err: r.err, Refuses: true}
	}
	return nil
}
