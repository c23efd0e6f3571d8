package await

import (
	"errors"
	"testing"
)

func TestGoroutinesAreFoundByTheirPackages(t *testing.T) {
	end, ended := make(chan struct{}), make(chan struct{})
	NoLeak(t, func() {
		before := goroutines([]string{"toolfinch/"})
		go func() { defer close(ended); <-end }()
		if now := goroutines([]string{"toolfinch/"}); len(now) != len(before)+1 {
			t.Errorf("%d goroutines, %d before", len(now), len(before))
		}
		if now := goroutines([]string{"example.com/other"}); len(now) != 0 {
			t.Errorf("goroutines of another package: %v", now)
		}
		close(end)
		<-ended
	})
}

func TestTheFirstSuccessEndsAWait(t *testing.T) {
	looks := 0
	True(t, func() bool { looks++; return looks == 3 })
	Nil(t, func() error {
		if looks++; looks < 6 {
			return errors.New("not yet")
		}
		return nil
	})
	values := make(chan int, 1)
	values <- looks
	if got := Value(t, values); got != 6 {
		t.Errorf("%d looks, want 6", got)
	}
}
