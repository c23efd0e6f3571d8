package proxytool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// parallel bounds the concurrent operations of a batch.
const parallel = 8

// batch runs operations and answers with their results in order. The result of a failed
// operation is an error result.
func (p *proxy) batch(ctx context.Context, call *tool.Call, ops []Operation) (json.RawMessage, error) {
	inner, err := within(call)
	if err != nil {
		return nil, err
	}
	progress := progress{token: rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken"), total: len(ops), notify: call.Notify}
	results := make([]json.RawMessage, len(ops))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, op := range ops {
		group.Go(func() error {
			if ctx.Err() == nil {
				results[i] = json.RawMessage(p.inBatch(ctx, inner, op))
				progress.step()
			}
			return nil
		})
	}
	_ = group.Wait() // no operation returns an error
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	label := Label{Action: ActionBatch, Data: DataToolResult, Many: &yes, Page: &Page{Total: len(ops), Count: len(ops)}}
	return one(embedJSON(uriOf(label), rawjson.Array(results), label)), nil
}

// within returns the call that makes the operations of a batch. It has the batch's depth. Clients
// cannot answer its questions by calling again.
func within(call *tool.Call) (*tool.Call, error) {
	outer := *call
	outer.Depth--
	// The progress of several operations would jump under one token, so the batch reports its own.
	if meta := rawjson.Member(call.Params, "_meta"); rawjson.Member(meta, "progressToken") != nil {
		outer.Params = set(call.Params, "_meta", rawjson.Without(meta, "progressToken"))
	}
	return outer.Inner(call.Name, nil)
}

func (p *proxy) inBatch(ctx context.Context, call *tool.Call, op Operation) (result tool.Result) {
	// A panic in our own goroutine would end the process.
	defer func() {
		if r := recover(); r != nil {
			p.log.ErrorContext(ctx, "panic in a batch", slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
			result = tool.ErrorResult(fmt.Sprintf("%s: internal error", rawjson.Clip(op.Path, maxShown)))
		}
	}()
	result, err := p.run(ctx, call, op, op.checkInBatch())
	var rpc *tool.RPCError
	switch {
	case errors.As(err, &rpc):
		return rpcResult(rpc)
	case err != nil:
		return tool.ErrorResult(err.Error())
	case !result.Complete():
		return tool.ErrorResult(fmt.Sprintf("%s asks for input; call it alone, not in a batch", rawjson.Clip(op.Path, maxShown)))
	}
	return result
}

// rpcResult converts a JSON-RPC error to an error result, whose _meta.error is the
// whole error object with code and data.
func rpcResult(failed *tool.RPCError) tool.Result {
	var meta rawjson.Object
	meta.Add(keyError, failed.JSON())
	return tool.Result(set(json.RawMessage(tool.ErrorResult(failed.Message)), "_meta", meta.JSON()))
}

// progress reports how many operations of a batch are done.
type progress struct {
	token  json.RawMessage // of the client; nil: no reports
	total  int
	notify func(method string, params json.RawMessage)

	mu   sync.Mutex // guards done; held over notify, so that reports stay in order
	done int
}

func (p *progress) step() {
	if p.token == nil || p.notify == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	var params rawjson.Object
	params.Add("progressToken", p.token)
	params.AddInt("progress", p.done)
	params.AddInt("total", p.total)
	p.notify("notifications/progress", params.JSON())
}
