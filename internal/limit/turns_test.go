package limit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"toolfinch/internal/must"
)

func TestAnOwnerTakesNoOthersTurn(t *testing.T) {
	for _, test := range []struct {
		name, ask string // one letter for each turn that is asked for: its owner
		turns     int
		has       map[string]int // turns at once
	}{
		{"alone", "aaaaaaaaaaaa", 16, map[string]int{"a": 8}},
		{"a second comes late", "aaaaaaaaaaaabbbbbb", 16, map[string]int{"a": 8, "b": 4}},
		{"a third, and a fourth", "aaaaaaaaaaaabbbbbbcccccdddd", 16, map[string]int{"a": 8, "b": 4, "c": 2, "d": 1}},
		{"one of two", "aab", 2, map[string]int{"a": 1, "b": 1}},
		{"one of one", "ab", 1, map[string]int{"a": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := NewTurns(test.turns)
				ctx, cancel := context.WithCancelCause(t.Context())
				over := errors.New("over")
				for _, owner := range strings.Split(test.ask, "") {
					go func() {
						if end, err := turns.Take(ctx, owner); err == nil {
							<-ctx.Done()
							end()
						} else if !errors.Is(err, over) {
							t.Error(err)
						}
					}()
					synctest.Wait()
				}
				for owner, want := range test.has {
					if turns.has[owner] != want {
						t.Errorf("%s has %d turns, want %d", owner, turns.has[owner], want)
					}
				}
				cancel(over)
				synctest.Wait()
				if turns.free != test.turns || len(turns.has)+len(turns.waiting) != 0 {
					t.Errorf("in the end %d are free, %v has some, %d wait", turns.free, turns.has, len(turns.waiting))
				}
			})
		})
	}
}

func TestOwnersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, came := NewTurns(1), ""
		end := must.Get(turns.Take(t.Context(), "x"))(t)
		for _, owner := range strings.Split("aaabbc", "") {
			go func() {
				end, err := turns.Take(t.Context(), owner)
				if err != nil {
					t.Error(err)
					return
				}
				came += owner
				end()
			}()
			synctest.Wait()
		}
		end()
		synctest.Wait()
		if came != "abcaba" {
			t.Errorf("the turns came as %s", came)
		}
	})
}
