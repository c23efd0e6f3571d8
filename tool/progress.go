package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"

	"toolfinch/internal/rawjson"
)

// Progress reports the calls inside a call to the client as one count, because their own counts would contradict
// each other. A nil *Progress reports nothing.
type Progress struct {
	notify func(method string, params json.RawMessage)
	token  json.RawMessage
	total  int // 0: unknown

	// mu guards sum, told and the done of all parts. It is held while the client is notified, so that the count
	// never decreases; it is never held over a call.
	mu   sync.Mutex
	sum  float64
	told float64
}

// NewProgress returns the progress of a call that makes total calls, 0 if unknown. It is nil if the client asked
// for no progress.
func NewProgress(call *Call, total int) *Progress {
	token := rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken")
	if call.Notify == nil || token == nil {
		return nil
	}
	return &Progress{notify: call.Notify, token: token, total: total}
}

// Part is the progress of one call inside another.
type Part struct {
	of   *Progress
	key  string
	done float64 // 0 to 1
}

// Part returns the progress of a call that clients know by key.
func (p *Progress) Part(key string) *Part { return &Part{of: p, key: key} }

// Notify returns a function for the notifications of the inner call: next, except for progress.
func (x *Part) Notify(client func(string, json.RawMessage)) func(string, json.RawMessage) {
	if client == nil {
		return nil
	}
	return func(method string, params json.RawMessage) {
		if method != "notifications/progress" {
			client(method, params)
			return
		}
		var said struct {
			Progress, Total float64
			Message         string
		}
		if json.Unmarshal(params, &said) == nil && said.Total > 0 {
			x.reach(min(said.Progress/said.Total, 0.99), said.Message) // the answer is the rest
		}
	}
}

// Finish counts the call as done, whether it succeeded or failed.
func (x *Part) Finish(err error) {
	if err != nil {
		x.reach(1, "failed")
		return
	}
	x.reach(1, "done")
}

func (x *Part) reach(done float64, message string) {
	p := x.of
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if done <= x.done {
		return
	}
	p.sum += done - x.done
	x.done = done
	now := math.Round(p.sum*1000) / 1000
	if now <= p.told {
		return
	}
	p.told = now
	text := x.key
	if message != "" {
		text += ": " + message
	}
	params, err := rawjson.Encode(struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Total    int             `json:"total,omitempty"`
		Message  string          `json:"message"`
	}{p.token, now, p.total, text})
	if err == nil {
		p.notify("notifications/progress", params)
	}
}

// Safely runs handler and returns a panic as an error: a panic in a Go hook would end the process.
func Safely(ctx context.Context, handler Handler, call *Call) (result Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			slog.ErrorContext(ctx, "panic in a call of a tool", "tool", call.Name, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: internal error", call.Name)
		}
	}()
	return handler(ctx, call)
}
