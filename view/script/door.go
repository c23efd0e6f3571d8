package script

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
)

// maxParallel bounds the concurrent calls of one ctx.parallel.
const maxParallel = 8

// request is one call of a tool, or a search for tools, with its result.
type request struct {
	Search bool   `json:",omitempty"`
	Query  string `json:",omitempty"` // of a search
	Limit  int    `json:",omitempty"` // of a search

	Tool      string          `json:",omitempty"` // of a call
	Arguments json.RawMessage `json:",omitempty"` // of a call: an object

	result json.RawMessage
	err    error
}

// door makes a run's requests of tools.
type door interface {
	// pass makes the requests and fills in their results and errors. Its own error is a reached limit;
	// the results are then void.
	pass(ctx context.Context, requests []*request) error
}

// hostDoor is the door in the Host's process. It counts requests and results.
type hostDoor struct {
	host   Host
	limits Limits
	calls  int          // left
	bytes  atomic.Int64 // of results, left
	script bool         // a model's script, which cannot raise its limits
	failed error        // the last error of the Host for a single request
}

func newHostDoor(host Host, limits Limits) *hostDoor {
	limits = limits.orDefaults()
	d := &hostDoor{host: host, limits: limits, calls: limits.Calls}
	d.bytes.Store(limits.Memory)
	return d
}

// pass makes requests concurrently and returns when all have ended. The end of ctx stops further ones
// from beginning.
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

// make makes one request. It recovers a panic of the host, which nothing else would.
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
