package group

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

func TestMessages(t *testing.T) {
	type message struct{ Value json.RawMessage }
	var sent strings.Builder
	long := `"` + strings.Repeat("<é", 100_000) + `"`
	to := NewMessages(strings.NewReader(""), &sent)
	for _, value := range []string{`{"a":12345678901234567890}`, long} {
		must.Do(t, to.Send(message{json.RawMessage(value)}))
	}
	from := NewMessages(strings.NewReader(sent.String()), io.Discard)
	for _, want := range []string{`{"a":12345678901234567890}`, long} {
		var got message
		if err := from.Receive(&got, 1<<20); err != nil || string(got.Value) != want {
			t.Errorf("%.50s, %v", got.Value, err)
		}
	}
	for text, want := range map[string]error{"": io.EOF, `{"Value":1}`: io.EOF, "hello\n": ErrNoMessage, long + "\n": ErrLong} {
		if err := NewMessages(strings.NewReader(text), io.Discard).Receive(&message{}, 1000); !errors.Is(err, want) {
			t.Errorf("%.50q: %v, want %v", text, err, want)
		}
	}
}
