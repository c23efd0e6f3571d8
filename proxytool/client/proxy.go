package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
	"toolfinch/tool"
)

// Result is what the proxy tool answered.
type Result struct {
	Raw json.RawMessage // the result object of tools/call, as it came
}

// Failed reports whether the tool that was called, or the proxy tool, says that
// it failed.
func (r *Result) Failed() bool { return tool.Result(r.Raw).Failed() }

// Text returns the text blocks, joined by line breaks.
func (r *Result) Text() string {
	var texts []string
	for block := range rawjson.Elements(rawjson.Member(r.Raw, "content")) {
		if rawjson.Text(rawjson.Member(block, "type")) == "text" {
			texts = append(texts, rawjson.Text(rawjson.Member(block, "text")))
		}
	}
	return strings.Join(texts, "\n")
}

// Decode reads an answer to list, info, batch or the call of a prompt. Its errors
// wrap proxytool.ErrNoAnswer.
func (r *Result) Decode() (*proxytool.Decoded, error) { return proxytool.Decode(r.Raw) }

// ResultError is an answer of the proxy tool that says that it could not do what
// was asked. What a tool says of its own failure is no ResultError but a Result.
type ResultError struct {
	Text   string // for people and models
	Result *Result
}

// Error returns the text.
func (e *ResultError) Error() string {
	if e.Text == "" {
		return "the proxy tool failed and does not say why"
	}
	return e.Text
}

// Proxy lists, describes or calls. path is the name of a tool or prompt or the
// URI of a resource, "" for a list; args are the arguments of a call: nil, JSON
// as json.RawMessage, or what marshals to a JSON object.
//
// What the proxy tool would refuse is refused before anything is sent
// (*args.Error). An answer that says it failed is a *ResultError, of
// a called tool a Result. JSON-RPC errors are as mcp-go returns them. A call that
// was lost with the connection is repeated once, but that of a tool only when it
// never reached the server.
func (c *Client) Proxy(ctx context.Context, typ proxytool.Type, action proxytool.Action, path string, args any) (*Result, error) {
	return c.runWith(ctx, proxytool.Operation{Action: action, Type: typ, Path: path}, args, nil, nil)
}

// Do runs any operation, a filtered list, a page of one or a batch, as Proxy does.
func (c *Client) Do(ctx context.Context, op proxytool.Operation) (*Result, error) {
	return c.run(ctx, op, nil, nil)
}

// runWith is run with args of any kind.
func (c *Client) runWith(ctx context.Context, op proxytool.Operation, args any, meta *mcp.Meta, header http.Header) (*Result, error) {
	raw, err := arguments(args)
	if err != nil {
		return nil, fmt.Errorf("proxytool: %s: %w", describe(op), err)
	}
	op.Args = raw
	return c.run(ctx, op, meta, header)
}

// run is Do with the _meta and HTTP headers of the caller.
func (c *Client) run(ctx context.Context, op proxytool.Operation, meta *mcp.Meta, header http.Header) (*Result, error) {
	what := describe(op)
	if err := op.Check(); err != nil {
		return nil, fmt.Errorf("proxytool: %s: %w", what, err)
	}
	request := mcp.CallToolRequest{Header: header}
	request.Params.Arguments = op.Arguments()
	request.Params.Meta = meta
	var result *Result
	err := c.do(ctx, what, repeatable(op), func(ctx context.Context, conn *conn) error {
		request := request
		request.Params.Name = conn.tool
		meta, done := c.withProgress(ctx, request.Params.Meta)
		defer done()
		request.Params.Meta = meta
		_, err := conn.mcp.CallTool(ctx, request)
		// What mcp-go's types cannot hold is no error here, but that it could not
		// answer what the server asked is.
		if raw := ctx.Value(tripKey{}).(*trip).raw; bytes.HasPrefix(raw, []byte("{")) && tool.Result(raw).Complete() {
			result, err = &Result{Raw: raw}, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if result.Failed() && !callsTool(op) {
		return nil, fmt.Errorf("proxytool: %s: %w", what, &ResultError{Text: result.Text(), Result: result})
	}
	return result, nil
}

// withProgress returns meta with a progress token, if the call has a ProgressFunc and
// no token of its own; done is to be called before the call returns.
func (c *Client) withProgress(ctx context.Context, meta *mcp.Meta) (with *mcp.Meta, done func()) {
	f, _ := ctx.Value(progressKey{}).(ProgressFunc)
	if f == nil {
		f = c.progress
	}
	if f == nil || meta != nil && meta.ProgressToken != nil {
		return meta, func() {}
	}
	with = &mcp.Meta{}
	if meta != nil {
		*with = *meta
	}
	with.ProgressToken, done = c.sinks.open(ctx, f)
	return with, done
}

// arguments returns args as JSON, nil when there are none.
func arguments(args any) (json.RawMessage, error) {
	if args == nil {
		return nil, nil
	}
	raw, ok := args.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(args); err != nil {
			return nil, fmt.Errorf("args: %w", err)
		}
	}
	if string(raw) == "null" { // a nil map
		return nil, nil
	}
	return raw, nil
}

func describe(op proxytool.Operation) string {
	what := string(op.Action)
	if op.Type != "" {
		what += " " + string(op.Type)
	}
	if op.Path != "" {
		what += " " + op.Path
	}
	return what
}

func callsTool(op proxytool.Operation) bool {
	return op.Action == proxytool.ActionCall && op.Type == proxytool.TypeTool
}

// repeatable reports whether doing it twice does no more than doing it once.
func repeatable(op proxytool.Operation) bool {
	for _, inner := range op.Operations {
		if callsTool(inner) {
			return false
		}
	}
	return !callsTool(op)
}
