// Package store owns what was learned from upstreams and must outlive the
// process: servers, their tools, prompts and resources, token counts, the index of
// their words, clients, vectors, what was called after which queries, what clients have provisioned, what
// that saved, sealed secrets, and for a while large results. It is the only package of
// the proxy that speaks SQL. It never dials and never decides what is searched or shown:
// a lost store costs time, because nearly all of it can be learned again, and so no
// state of the disk but a newer version's database keeps the program from starting.
package store

import (
	"time"
)

const (
	fileName = "toolfinch.db"
	lockName = "toolfinch.lock"
)

// Store is an open database. Its methods are safe for concurrent use, from
// several processes too; each waits at most 5 s for another writer. A method
// that fails has changed nothing, and the store may be used on: a full disk or
// a lock held by another process can pass.
//
// Store itself has servers, what they listed, and what was computed or written of that. What
// else is stored has types of its own over the same database, which promise the same: Pins,
// Usage, Outputs, Keys, Sealed, Replicas and Sessions.
type Store struct{ *database }

// Durable reports whether the store is a file or a PostgreSQL database that is open for
// writing. If not, what is written is forgotten at Close.
func (s *Store) Durable() bool { return s.path != "" || s.remote != nil && !s.readOnly }

// Health returns a *Away while PostgreSQL does not answer, else nil. It asks nobody: what
// it says is at most some seconds old.
func (s *Store) Health() *Away {
	if s.remote == nil {
		return nil
	}
	return s.remote.away.Load()
}

// Trouble is Health, and says, too, that PostgreSQL answers and stores nothing.
func (s *Store) Trouble() *Away {
	if away := s.Health(); away != nil || s.remote == nil {
		return away
	}
	if r := s.remote.refused.Load(); r != nil && time.Since(r.last) < refusedFor {
		return &Away{Since: r.since, Err: r.err, Refuses: true}
	}
	return nil
}
