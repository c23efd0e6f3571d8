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
			h := newHealth(Settings{Name: "s"}, Known{Era: EraLegacy}, newMask([]string{"abcdef"}))
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
	h := newHealth(Settings{Name: "s"}, Known{Era: EraLegacy}, newMask([]string{"abcdef"}))
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

// A server that is downloaded at its first start says so until it is connected or has failed.
func TestADownloadIsAState(t *testing.T) {
	h := newHealth(Settings{Name: "s", Command: "npx"}, Known{}, newMask(nil))
	want := func(when string, want State) {
		t.Helper()
		if got := h.get().State; got != want {
			t.Errorf("%s the state is %s, want %s", when, got, want)
		}
	}
	if want("before its turn", StateQueued); !h.get().Began.IsZero() {
		t.Error("it began before its turn")
	}
	h.starts(true)
	if want("while it starts", StateDownloading); h.get().Began.IsZero() || h.get().Since != h.get().Began {
		t.Errorf("it began at %s", h.get().Began)
	}
	h.exchanged(errors.New("no"))
	h.starts(true)
	want("after a failure", StateFailed)
	h.dialled(EraLegacy, TransportStdio)
	want("once connected", StateReady)
}
