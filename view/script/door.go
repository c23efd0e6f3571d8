package script

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
)

// maxParallel is how many calls of one ctx.parallel run at a time.
const maxParallel = 8

// request is one call of a tool, or a search for tools, and what came of it.
type request struct {
	Search bool   `json:",omitempty"`
	Query  string `json:",omitempty"` // of a search
	Limit  int    `json:",omitempty"` // of a search

	Tool      string          `json:",omitempty"` // of a call
	Arguments json.RawMessage `json:",omitempty"` // of a call: an object

	result json.RawMessage
	err    error
}

// door is how a run reaches tools.
type door interface {
	// pass makes the requests and fills in their results and errors. Its own error is
	// that of a limit, and then none of the results counts.
	pass(ctx context.Context, requests []*request) error
}

// hostDoor is the door in the process of the Host. It counts what passes.
type hostDoor struct {
	host   Host
	limits Limits
	calls  int          // left
	bytes  atomic.Int64 // of results, left
	script bool         // a model's: it cannot raise its limits
	failed error        // the last error of the Host for a single request
}

func newHostDoor(host Host, limits Limits) *hostDoor {
	limits = limits.orDefaults()
	d := &hostDoor{host: host, limits: limits, calls: limits.Calls}
	d.bytes.Store(limits.Memory)
	return d
}

// pass makes several requests at a time and returns when all have ended. Those not
// begun when ctx ends are not.
func (d *hostDoor) pass(ctx context.Context, requests []*request) error {
	if len(requests) > d.calls {
		return reached(d.script, "%d calls of tools: make fewer", "the limit of calls", d.limits.Calls)
	}
	d.calls -= len(requests)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan *request, len(requests))
	for _, one := range requests {
		next <- one
	}
	close(next)
	var running sync.WaitGroup
	for range min(maxParallel, len(requests)) {
		running.Go(func() {
			for one := range next {
				if one.err = ctx.Err(); one.err == nil {
					d.make(ctx, one)
				}
				if d.bytes.Add(-int64(len(one.result))) < 0 {
					one.result = nil
					cancel()
				}
			}
		})
	}
	running.Wait()
	if d.bytes.Load() < 0 {
		return limitError("%d bytes of answers of tools in all: ask for less, or call fewer", d.limits.Memory)
	}
	if len(requests) == 1 {
		d.failed = requests[0].err
	}
	return nil
}

// make makes one request. A panic in a host must not end the program: here nobody
// else would recover it.
func (d *hostDoor) make(ctx context.Context, one *request) {
	defer func() {
		if caught := recover(); caught != nil {
			one.err = fmt.Errorf("panic: %v", caught)
		}
	}()
	if one.Search {
		one.result, one.err = d.host.Retrieve(ctx, one.Query, one.Limit)
		return
	}
	one.result, one.err = d.host.CallTool(ctx, one.Tool, one.Arguments)
}
