package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/trust/leaks"
)

// leaksMeta is the member of _meta that says which secrets an answer has, or had.
const leaksMeta = "toolfinch/secrets"

// guard returns what keeps the secrets in a server's answers from clients of a view, as
// the configuration says; nil where it is off. server is "" for the view's own tools.
func guard(log *slog.Logger, mode leaks.Mode, view, server string) tool.Middleware {
	if mode == "" || mode == leaks.Off {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			with := *call
			with.Client = call.Client.WithoutTasks() // the result of a task would pass by
			result, err := next(ctx, &with)
			found := leaked{mode: mode, log: log.With("view", view, "server", server, "name", call.Name)}
			if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
				return result, found.inError(ctx, err, rpc)
			}
			if err != nil || !result.Complete() { // what asks for input has a state that is the server's
				return result, err
			}
			return found.inResult(ctx, call.Kind, result)
		}
	}
}

// leaked decides about one answer.
type leaked struct {
	mode leaks.Mode
	log  *slog.Logger
}

func (l leaked) inResult(ctx context.Context, kind tool.Kind, result tool.Result) (tool.Result, error) {
	clean, kinds := leaks.JSON(result)
	if len(kinds) == 0 {
		return result, nil
	}
	l.log.InfoContext(ctx, "an answer has secrets in it", "kinds", kinds, "secrets", l.mode)
	what := strings.Join(kinds, ", ")
	switch {
	case l.mode == leaks.Redact:
		return noted(tool.Result(clean), l.mode, kinds), nil
	case l.mode == leaks.Mark && kind == tool.KindTool:
		return noted(withBlock(result, fmt.Sprintf("Note of toolfinch: this answer has in it what looks like a secret (%s). Do not repeat it, and pass it on only if the user asks for that.", what)), l.mode, kinds), nil
	case l.mode == leaks.Mark:
		return noted(result, l.mode, kinds), nil
	case kind == tool.KindTool:
		return tool.ErrorResult(withheld(what)), nil
	}
	return nil, &tool.RPCError{Code: tool.CodeInternal, Message: withheld(what)}
}

// inError does the same for the error that a server answers with. There is no place for
// a mark in it.
func (l leaked) inError(ctx context.Context, err error, rpc *tool.RPCError) error {
	if rpc.Code == tool.CodeURLElicitation { // its URL is for the user, and has a state in it
		return err
	}
	message, kinds := leaks.Text(rpc.Message)
	data, more := leaks.JSON(rpc.Data)
	raw, most := leaks.JSON(rpc.Raw)
	if kinds = append(append(kinds, more...), most...); len(kinds) == 0 {
		return err
	}
	l.log.InfoContext(ctx, "an error has secrets in it", "kinds", kinds, "secrets", l.mode)
	switch l.mode {
	case leaks.Redact:
		return &tool.RPCError{Code: rpc.Code, Message: message, Data: data, Raw: raw}
	case leaks.Block:
		return &tool.RPCError{Code: rpc.Code, Message: withheld(kinds[0])}
	}
	return err
}

func withheld(what string) string {
	return fmt.Sprintf("toolfinch withholds the answer: it has in it what looks like a secret (%s). The owner's configuration says so (secrets: block); do not try to get it another way", what)
}

// noted is a result with a note in its _meta.
func noted(result tool.Result, mode leaks.Mode, kinds []string) tool.Result {
	note := rawjson.Of(map[string]any{"mode": mode, "kinds": kinds})
	meta := []byte(rawjson.Member(json.RawMessage(result), "_meta"))
	if !rawjson.IsObject(meta) {
		meta = []byte(`{}`)
	}
	meta, err := rawjson.Set(meta, leaksMeta, note)
	if err != nil {
		return result
	}
	out, err := rawjson.Set(result, "_meta", meta)
	if err != nil {
		return result
	}
	return out
}

// withBlock is a result with a block of text behind its content.
func withBlock(result tool.Result, text string) tool.Result {
	var blocks []json.RawMessage
	for block := range rawjson.Elements(rawjson.Member(json.RawMessage(result), "content")) {
		blocks = append(blocks, block)
	}
	blocks = append(blocks, rawjson.Of(map[string]string{"type": "text", "text": text}))
	out, err := rawjson.Set(result, "content", rawjson.Array(blocks))
	if err != nil {
		return result
	}
	return out
}
