package schema

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// Expensive checks take memory, so few run at a time. Cheap ones wait for nobody.
func TestExpensiveChecksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache()
		for range cap(c.slots) {
			c.slots <- struct{}{}
		}
		schema := json.RawMessage(`{"items":{"type":"integer"}}`)
		large := json.RawMessage("[" + strings.Repeat("1,", 50_000) + "1]")
		if _, err := c.Check(t.Context(), "s", schema, json.RawMessage(`[1]`)); err != nil {
			t.Error(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				_, err := c.Check(ctx, "s", schema, large)
				errs <- err
			}()
		}
		synctest.Wait()
		if len(errs) > 0 {
			t.Fatalf("an expensive check did not wait: %v", <-errs)
		}
		leave()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is told %v", err)
		}
		<-c.slots
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
}
