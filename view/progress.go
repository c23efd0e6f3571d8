package view

import (
	"encoding/json"
	"math"
	"sync"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// progress reports the calls inside a call to the client as one count, because their
// own counts would contradict each other. A nil *progress reports nothing.
type progress struct {
	notify func(method string, params json.RawMessage)
	token  json.RawMessage
	total  int // 0: not known

	// mu guards sum, told and the done of all parts. It is held while the client is
	// told, so that the count never falls; never over a call.
	mu   sync.Mutex
	sum  float64
	told float64
}

// newProgress returns nil when the client asked for no progress.
func newProgress(call *tool.Call, total int) *progress {
	token := rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken")
	if call.Notify == nil || token == nil {
		return nil
	}
	return &progress{notify: call.Notify, token: token, total: total}
}

// part is what one call inside another adds to the progress.
type part struct {
	of   *progress
	key  string
	done float64 // 0 to 1
}

func (p *progress) part(key string) *part { return &part{of: p, key: key} }

// notify returns what takes the notifications about the call: the client's own
// outlet, except for progress.
func (x *part) notify(client func(string, json.RawMessage)) func(string, json.RawMessage) {
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
			x.reach(min(said.Progress/said.Total, 0.99), said.Message) // the rest is the answer
		}
	}
}

// finish counts the call as done, well or not.
func (x *part) finish(err error) {
	if err != nil {
		x.reach(1, "failed")
		return
	}
	x.reach(1, "done")
}

func (x *part) reach(done float64, message string) {
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
