package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// fakeHost has the tools echo, which answers what it was called with, wait, which
// waits for the end of the call, fail, bad, whose answer is no JSON, big, whose
// answer has 8 MB, colliding, whose answer has names with alike hashes, and panic.
type fakeHost struct {
	running, most, calls atomic.Int64
	barrier              func() // called within every call, when set
}

// colliding is an object of 10,000 names whose hashes, FNV-1a as the interpreter
// takes it for short texts, end in the same 12 bits.
var colliding = sync.OnceValue(func() json.RawMessage {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	add := func(hash uint32, c byte) uint32 { return (hash ^ uint32(c)) * 16777619 }
	out := []byte("{")
	for i, n := 0, 0; n < 10_000; i++ {
		name, hash := strconv.AppendInt(nil, int64(i), 10), uint32(2166136261)
		name = append(name, '_')
		for _, c := range name {
			hash = add(hash, c)
		}
	search:
		for j := range digits {
			for k := range digits {
				if add(add(hash, digits[j]), digits[k])%(1<<12) == 0 {
					out = fmt.Appendf(out, "%q:0,", string(name)+digits[j:j+1]+digits[k:k+1])
					n++
					break search
				}
			}
		}
	}
	out[len(out)-1] = '}'
	return out
})

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
	case "big":
		return json.RawMessage(`"` + strings.Repeat("a", 8<<20) + `"`), nil
	case "colliding":
		return colliding(), nil
	case "panic":
		panic("a bug")
	}
	return arguments, nil
}

func (h *fakeHost) Retrieve(_ context.Context, query string, limit int) (json.RawMessage, error) {
	return json.RawMessage(fmt.Sprintf(`[{"name":%q,"limit":%d}]`, query, limit)), nil
}
