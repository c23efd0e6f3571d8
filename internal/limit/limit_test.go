package limit

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"toolfinch/internal/must"
)

func TestALimitIsNeverExceeded(t *testing.T) {
	b := New("things", 10, "things are there", "take fewer")
	var most, refused atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 1000 {
				err := b.Take(3)
				if err != nil {
					refused.Add(1)
					continue
				}
				if used := b.Used(); used > most.Load() {
					most.Store(used)
				}
				b.Release(3)
			}
		})
	}
	all.Wait()
	if b.Used() != 0 || most.Load() > 10 || b.Hits() != refused.Load() {
		t.Errorf("%d are used, %d were; %d hits, %d refusals", b.Used(), most.Load(), b.Hits(), refused.Load())
	}
}

func TestWhatIsRefusedSaysWhatToDo(t *testing.T) {
	b := New("things", 2, "things are there", "take fewer")
	must.Do(t, b.Take(2))
	err := b.Take(1)
	var full *Error
	if want := "too many things are there: the limit is 2; take fewer"; !errors.As(err, &full) || err.Error() != want {
		t.Errorf("Take = %v, want %s", err, want)
	}
	if err := New("", 10, "", "").TakeBelow(5, 4); err == nil {
		t.Error("more than the lower limit was taken")
	}
}

func TestEachOwnerHasItsOwn(t *testing.T) {
	b := New("things", 1, "things", "take fewer")
	var one, other atomic.Int64
	for _, owner := range []*atomic.Int64{&one, &other} {
		if err := b.TakeOf(owner); err != nil {
			t.Error(err)
		}
	}
	if err := b.TakeOf(&one); err == nil || b.Used() != 2 || one.Load() != 1 {
		t.Errorf("a second one: %v; %d are used, %d of it", err, b.Used(), one.Load())
	}
	b.ReleaseOf(&one)
	if err := b.TakeOf(&one); err != nil || b.Used() != 2 {
		t.Errorf("after it was given back: %v, %d are used", err, b.Used())
	}
}

func TestSharesAreOfEachOwner(t *testing.T) {
	s := NewShares("things", 2, "things of this owner", "take fewer")
	for _, owner := range []string{"ann", "ann", "bob", "", "", ""} {
		if err := s.TakeFor(owner); err != nil {
			t.Errorf("%q: %v", owner, err)
		}
	}
	err := s.TakeFor("ann")
	var full *Error
	if !errors.As(err, &full) || !full.Own() || s.Used() != 3 || s.Hits() != 1 {
		t.Errorf("a third of ann's: %v; %d are used, %d hits", err, s.Used(), s.Hits())
	}
	s.ReleaseFor("ann")
	s.ReleaseFor("")
	if err := s.TakeFor("ann"); err != nil {
		t.Error(err)
	}
	for _, owner := range []string{"ann", "ann", "bob"} {
		s.ReleaseFor(owner)
	}
	if s.Used() != 0 || len(s.of) != 0 {
		t.Errorf("%d are used, by %v", s.Used(), s.of)
	}
}
