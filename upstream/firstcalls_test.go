package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
)

// While one client tries a tool, others wait for a moment; not for a tool that was
// called before, nor for longer than a moment, and each tool at most once.
func TestAToolIsTriedByOneClientAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPool(t, Settings{Name: "s", Command: "none"}).now.Load().byName["s"]
		call := func(client, name string) (took time.Duration, done func(bool), asks bool) {
			began := time.Now()
			done, asks, err := s.sharing.first.begin(t.Context(), client, tool.ID{Server: "s", Name: name}, s.questions.begun)
			if err != nil {
				t.Fatal(err)
			}
			return time.Since(began), done, asks
		}
		_, long, _ := call("a", "long")
		if took, done, _ := call("a", "other"); took != 0 {
			t.Errorf("the client itself waited %s", took)
		} else {
			done(false)
		}
		for _, want := range []time.Duration{leeway.Of(tryWithin), 0} {
			took, done, asks := call("b", "quick")
			if took != want || asks {
				t.Errorf("another client waited %s, want %s", took, want)
			}
			done(true)
		}
		go func() {
			time.Sleep(tryWithin / 2)
			s.questions.note()
		}()
		if took, _, asks := call("b", "new"); !asks || took != tryWithin/2 {
			t.Errorf("it waited %s; that the server has asked is known: %v", took, asks)
		}
		long(true)
		if s.sharing.first.running != 0 {
			t.Error("the trial goes on")
		}
	})
}
