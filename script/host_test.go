package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
)

// fakeHost has the tools echo, which answers what it was called with, wait, which
// waits for the end of the call, fail, bad, whose answer is no JSON, and panic.
type fakeHost struct {
	running, most, calls atomic.Int64
	barrier              func() // called within every call, when set
}

var errFake = errors.New("the tool is out of order")

func (h *fakeHost) CallTool(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	h.calls.Add(1)
	now := h.running.Add(1)
	defer h.running.Add(-1)
	for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
	}
	if h.barrier != nil {
		h.barrier()
	}
	switch name {
	case "wait":
		<-ctx.Done()
		return nil, ctx.Err()
	case "fail":
		return nil, errFake
	case "bad":
		return json.RawMessage(`{"a":`), nil
	case "panic":
		panic("a bug")
	}
	return arguments, nil
}

func (h *fakeHost) Retrieve(_ context.Context, query string, limit int) (json.RawMessage, error) {
	return json.RawMessage(fmt.Sprintf(`[{"name":%q,"limit":%d}]`, query, limit)), nil
}
