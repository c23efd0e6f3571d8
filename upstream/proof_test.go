package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/tool"
)

// While one client tries a tool, others wait for a moment; not for a tool that was
// called before, nor for longer than a moment, and each tool at most once.
func TestAToolIsTriedByOneClientAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPool(t, Settings{Name: "s", Command: "none"}).now.Load().byName["s"]
		call := func(client, name string) (took time.Duration, done func(bool), asks bool) {
			began := time.Now()
			done, asks, err := s.prove(t.Context(), client, tool.ID{Server: "s", Name: name})
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
		for _, want := range []time.Duration{proveWithin, 0} {
			took, done, asks := call("b", "quick")
			if took != want || asks {
				t.Errorf("another client waited %s, want %s", took, want)
			}
			done(true)
		}
		go func() {
			time.Sleep(proveWithin / 2)
			s.asks()
		}()
		if took, _, asks := call("b", "new"); !asks || took != proveWithin/2 {
			t.Errorf("it waited %s; that the server has asked is known: %v", took, asks)
		}
		long(true)
		if s.proofs.trial != nil {
			t.Error("the trial goes on")
		}
	})
}
