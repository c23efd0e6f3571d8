package store

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/internal/postgres"
)

// sessions opens the sessions of a new database, as two replicas do.
func sessions(t *testing.T) (a, b *Sessions) {
	t.Helper()
	url := postgres.Start(t)
	a, ok := open(t, url).Sessions()
	if !ok {
		t.Fatal("PostgreSQL has no sessions")
	}
	b, _ = open(t, url).Sessions()
	return a, b
}

func TestOnlyReplicasShareSessions(t *testing.T) {
	if _, ok := open(t, t.TempDir()).Sessions(); ok {
		t.Error("SQLite has sessions")
	}
}

func TestASessionIsStored(t *testing.T) {
	a, b := sessions(t)
	want := Session{Hash: [32]byte{1, 31: 0xff}, Home: "R1", Address: "one:7391", View: "ops", Principal: "https://idp|ällice",
		Initialize: []byte(`{"id":1, "x":"\u0000"}`), State: []byte("{}")}
	if _, err := a.Put(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got, found, err := b.Find(t.Context(), want.Hash); err != nil || !found || !reflect.DeepEqual(got, want) {
		t.Errorf("found %v: %+v, %v", found, got, err)
	}
	if got, found, err := b.Find(t.Context(), [32]byte{2}); err != nil || found {
		t.Errorf("one that is not there: %+v, %v", got, err)
	}
}

func TestASessionThatIsPutLateStaysWithItsNextHome(t *testing.T) {
	a, b := sessions(t)
	one := Session{Hash: [32]byte{1}, Home: "R1", Address: "one:1", Initialize: []byte("{}"), State: []byte("first")}
	put := func(state string, want Session) {
		t.Helper()
		one.State = []byte(state)
		if _, err := a.Put(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if got, found, err := b.Find(t.Context(), one.Hash); err != nil || !found || !reflect.DeepEqual(got, want) {
			t.Errorf("stored is %+v, %v, want %+v", got, err, want)
		}
	}
	want := one
	put("first", want)
	want.State = []byte("again") // as where an answer of the database was lost
	put("again", want)
	if moved, err := b.Move(t.Context(), one.Hash, "R1", "R2", "two:1"); !moved || err != nil {
		t.Fatal(moved, err)
	}
	want.Home, want.Address = "R2", "two:1"
	put("late", want)
}

func TestOfManyThatMoveASessionOneDoes(t *testing.T) {
	a, b := sessions(t)
	hash := [32]byte{1}
	if _, err := a.Put(t.Context(), Session{Hash: hash, Home: "R0", Initialize: []byte("{}"), State: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	var won atomic.Int64
	var moving sync.WaitGroup
	for i := range 8 {
		moving.Go(func() {
			moved, err := []*Sessions{a, b}[i%2].Move(t.Context(), hash, "R0", fmt.Sprint("R", i+1), "there:1")
			if err != nil {
				t.Error(err)
			}
			if moved {
				won.Add(1)
			}
		})
	}
	moving.Wait()
	if won.Load() != 1 {
		t.Errorf("%d have won", won.Load())
	}
	if got, _, _ := b.Find(t.Context(), hash); got.Home == "R0" || got.Address != "there:1" {
		t.Errorf("it is at %+v", got)
	}
}

func TestAHomeChangesItsOwnSessionsAlone(t *testing.T) {
	a, b := sessions(t)
	mine, others, nowhere := [32]byte{1}, [32]byte{2}, [32]byte{3}
	for hash, home := range map[[32]byte]string{mine: "R1", others: "R2"} {
		if _, err := a.Put(t.Context(), Session{Hash: hash, Home: home, Initialize: []byte("{}"), State: []byte("old")}); err != nil {
			t.Fatal(err)
		}
	}
	state := func(hash [32]byte) string {
		t.Helper()
		got, _, err := b.Find(t.Context(), hash)
		if err != nil {
			t.Fatal(err)
		}
		return string(got.State)
	}
	lostIn := func(lost [][32]byte, err error) {
		t.Helper()
		slices.SortFunc(lost, func(a, b [32]byte) int { return int(a[0]) - int(b[0]) })
		if err != nil || !slices.Equal(lost, [][32]byte{others, nowhere}) {
			t.Errorf("lost are %v, %v", lost, err)
		}
	}
	lostIn(a.Change(t.Context(), "R1", map[[32]byte][]byte{mine: []byte("new"), others: []byte("new"), nowhere: []byte("new")}))
	if state(mine) != "new" || state(others) != "old" {
		t.Errorf("the states are %q and %q", state(mine), state(others))
	}
	for hash, want := range map[[32]byte]bool{mine: true, others: false, nowhere: false} {
		if released, err := a.Release(t.Context(), hash, "R1", []byte("last")); err != nil || released != want {
			t.Errorf("session %d is released: %v, %v", hash[0], released, err)
		}
	}
	if lost, err := a.Change(t.Context(), "R1", map[[32]byte][]byte{mine: []byte("late")}); err != nil || len(lost) != 1 {
		t.Errorf("a late change of what was released: %v, %v", lost, err)
	}
	if state(mine) != "last" || state(others) != "old" {
		t.Errorf("the states are %q and %q", state(mine), state(others))
	}
	if moved, err := a.Move(t.Context(), mine, "", "R1", "one:1"); err != nil || !moved {
		t.Fatal(moved, err)
	}
	lostIn(a.Keep(t.Context(), "R1", [][32]byte{mine, others, nowhere}))
	if err := a.Drop(t.Context(), "R1", [][32]byte{mine, others}); err != nil {
		t.Fatal(err)
	}
	if state(mine) != "" || state(others) != "old" {
		t.Errorf("dropped: %q and %q are left", state(mine), state(others))
	}
}

func TestSessionsThatNobodyKeepsGo(t *testing.T) {
	a, _ := sessions(t)
	old, kept := [32]byte{1}, [32]byte{2}
	for _, hash := range [][32]byte{old, kept} {
		if _, err := a.Put(t.Context(), Session{Hash: hash, Home: "R1", Initialize: []byte("{}"), State: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.db.Exec(`UPDATE sessions SET seen = now() - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	if lost, err := a.Keep(t.Context(), "R1", [][32]byte{kept}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if err := a.Sweep(t.Context(), 30*time.Minute); err != nil {
		t.Fatal(err)
	}
	for hash, want := range map[[32]byte]bool{old: false, kept: true} {
		if _, found, err := a.Find(t.Context(), hash); err != nil || found != want {
			t.Errorf("%d is there: %v, %v", hash[0], found, err)
		}
	}
}
