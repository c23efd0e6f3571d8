package upstream

import (
	"errors"
	"fmt"
	"testing"

	"toolfinch/tool"
)

// costly counts how often its text is made.
type costly struct{ texts int }

func (c *costly) Error() string {
	c.texts++
	return "the token abcdef is refused"
}

// Each search reads the health of every server: the text of an error is made and masked
// when the error comes, and never again.
func TestReadingHealthMakesNoTexts(t *testing.T) {
	for name, within := range map[string]func(error) error{
		"alone":      func(err error) error { return err },
		"of a list":  func(err error) error { return &Error{Server: "s", Op: "list", Err: err} },
		"of a chain": func(err error) error { return fmt.Errorf("connect: %w", err) },
	} {
		t.Run(name, func(t *testing.T) {
			cause := &costly{}
			err := within(cause)
			want := newMask([]string{"abcdef"}).text(err.Error())
			h := newHealth(Settings{Name: "s"}, EraLegacy, newMask([]string{"abcdef"}))
			h.exchanged(err)
			before := cause.texts
			for range 3 {
				if got := h.get().Err.Error(); got != want {
					t.Errorf("the error is %q, want %q", got, want)
				}
			}
			if cause.texts != before {
				t.Errorf("the text was made %d times while the health was read", cause.texts-before)
			}
			if !errors.Is(h.get().Err, error(cause)) {
				t.Error("the cause is lost")
			}
		})
	}
}

// A list that fails counts until one goes well, whatever calls do meanwhile, and is masked.
func TestAFailedListIsMasked(t *testing.T) {
	h := newHealth(Settings{Name: "s"}, EraLegacy, newMask([]string{"abcdef"}))
	h.toolsListed(&tool.RPCError{Message: "abcdef may not list"})
	h.exchanged(nil)
	if got := h.all(); got.State != StateFailed || got.Err == nil || got.Err.Error() != (&tool.RPCError{Message: "*** may not list"}).Error() {
		t.Errorf("the status is %s, %v", got.State, got.Err)
	}
	h.toolsListed(nil)
	h.exchanged(nil)
	if got := h.get(); got.State != StateReady || got.Err != nil {
		t.Errorf("the health is %s, %v", got.State, got.Err)
	}
}
