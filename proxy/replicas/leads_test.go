package replicas

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"toolfinch/internal/await"
	"toolfinch/store"
)

// database is what members share: who is there and who has locked what. It can be away.
type database struct {
	mu       sync.Mutex // guards what follows
	replicas map[string]store.Replica
	locked   map[string]string // by server: the ID
	away     bool
	members  []*member
}

type member struct {
	of   *database
	id   string // guarded by the mutex of the database, like what follows
	dead bool
}

// use locks the database; the error says that the member is none any more.
func (s *member) use() (d *database, unlock func(), err error) {
	s.of.mu.Lock()
	if s.dead {
		s.of.mu.Unlock()
		return nil, nil, errAway
	}
	return s.of, s.of.mu.Unlock, nil
}

var errAway = errors.New("away")

func (d *database) opens(id string) func(context.Context) (Membership, error) {
	return func(context.Context) (Membership, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.away {
			return nil, errAway
		}
		s := &member{of: d, id: id}
		d.members = append(d.members, s)
		return s, nil
	}
}

// lose ends all members, as a restart does.
func (d *database) lose(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
	clear(d.locked)
	clear(d.replicas)
	for _, s := range d.members {
		s.dead = true
	}
	d.members = nil
}

func (d *database) leader(server string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locked[server]
}

func (s *member) Tell(_ context.Context, me store.Replica) ([]store.Replica, error) {
	d, unlock, err := s.use()
	if err != nil {
		return nil, err
	}
	defer unlock()
	d.replicas[me.ID] = me
	return slices.SortedFunc(maps.Values(d.replicas), func(a, b store.Replica) int { return cmp.Compare(a.ID, b.ID) }), nil
}

func (s *member) Lead(_ context.Context, servers []string) (leads []string, err error) {
	d, unlock, err := s.use()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, server := range servers {
		if d.locked[server] == "" {
			d.locked[server] = s.id
			leads = append(leads, server)
		}
	}
	return leads, nil
}

func (s *member) Leave(_ context.Context, servers []string) error {
	d, unlock, err := s.use()
	if err != nil {
		return err
	}
	defer unlock()
	for _, server := range servers {
		delete(d.locked, server)
	}
	return nil
}

func (s *member) Close() error {
	d, unlock, err := s.use()
	if err != nil {
		return nil
	}
	defer unlock()
	maps.DeleteFunc(d.locked, func(_ string, id string) bool { return id == s.id })
	delete(d.replicas, s.id)
	return nil
}

func TestEachServerHasOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{replicas: map[string]store.Replica{}, locked: map[string]string{}}
		servers := []string{"one", "two", "three", "four"}
		all := map[string]*Leads{}
		stops := map[string]func(){}
		for _, id := range []string{"a", "b", "c"} {
			l := NewLeads(store.Replica{ID: id}, db.opens(id), slog.New(slog.DiscardHandler))
			l.Compete(servers, "")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); l.Run(ctx) }()
			all[id], stops[id] = l, func() { cancel(); <-done }
		}
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		// led waits until each server has exactly one leader, and all know.
		led := func() {
			t.Helper()
			await.True(t, func() bool {
				for _, server := range servers {
					var leads []string
					for id, l := range all {
						if is, _ := l.Leads(server); is {
							leads = append(leads, id)
						}
					}
					if len(leads) != 1 || db.leader(server) != leads[0] {
						return false
					}
					for id, l := range all {
						if known, _, err := l.Replicas(); len(known) != len(all) || err != nil || l.LedElsewhere(server) != (id != leads[0]) {
							return false
						}
					}
				}
				return true
			})
		}
		led()
		// One that ends leads nothing, and another takes what it led.
		first := db.leader("one")
		_, turned := all[first].Leads("one")
		stops[first]()
		await.Value(t, turned)
		if is, _ := all[first].Leads("one"); is {
			t.Error("it leads after its end")
		}
		delete(all, first)
		delete(stops, first)
		led()
		// A server that one of them has no more is another's.
		second := db.leader("one")
		all[second].Compete(servers[1:], "")
		await.True(t, func() bool { return db.leader("one") != second && db.leader("one") != "" })
		all[second].Compete(servers, "")
		led()
		// Without the database nobody leads anything; with it, each server has a leader again.
		db.lose(true)
		await.True(t, func() bool {
			for _, l := range all {
				for _, server := range servers {
					if is, _ := l.Leads(server); is || l.LedElsewhere(server) {
						return false
					}
				}
				if _, _, err := l.Replicas(); err == nil {
					return false
				}
			}
			return true
		})
		db.lose(false)
		led()
	})
}
