package proxytool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/yosida95/uritemplate/v3"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// Option changes what Attach does.
type Option func(*options)

type options struct {
	name string
	log  *slog.Logger
}

// WithName gives the proxy tool another name than DefaultName.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithLogger logs uses of the proxy tool, see New. Without it they are not logged.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// Attach gives a server the proxy tool over its own tools, resources and prompts, including the calling
// session's. Calls through it pass the server's hooks, filters and middleware like direct calls; the
// proxy tool cannot reach itself. It fails if the server has a tool of that name.
//
// A server that validates arguments against input schemas accepts args only as an object, and no null.
func Attach(s *server.MCPServer, opts ...Option) error {
	o := options{name: DefaultName}
	for _, opt := range opts {
		opt(&o)
	}
	if o.name == "" {
		return errors.New("attach the proxy tool: its name is empty")
	}
	if s.GetTool(o.name) != nil {
		return fmt.Errorf("attach the proxy tool: the server has a tool named %q already; choose another name", o.name)
	}
	t := New(o.name, &attached{server: s, own: o.name}, o.log)
	def := mcp.NewToolWithRawSchema(o.name, t.Def.Description, t.Def.InputSchema)
	def.Annotations = mcp.ToolAnnotation{}
	def.Meta = &mcp.Meta{AdditionalFields: map[string]any{"anthropic/alwaysLoad": true}}
	s.AddTool(def, func(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		call, err := callOf(ctx, s, request)
		if err != nil {
			return nil, err
		}
		if server.IsModernRequest(ctx) {
			ctx = unchecked{ctx}
		}
		return answered(t.Handler(ctx, call))
	})
	return nil
}

// callOf makes a call of a request.
func callOf(ctx context.Context, s *server.MCPServer, request mcp.CallToolRequest) (*tool.Call, error) {
	params, err := json.Marshal(request.Params)
	if err != nil {
		return nil, fmt.Errorf("read the arguments: %w", err)
	}
	arguments := request.Params.RawArguments
	if len(arguments) == 0 {
		arguments = rawjson.Member(params, "arguments")
	}
	call := &tool.Call{
		Name:      request.Params.Name,
		Arguments: arguments,
		Params:    params,
		Client:    &tool.Client{Modern: server.IsModernRequest(ctx)},
		Notify: func(method string, params json.RawMessage) {
			var fields map[string]any
			decoder := json.NewDecoder(strings.NewReader(string(params)))
			decoder.UseNumber()
			if decoder.Decode(&fields) == nil {
				_ = s.SendNotificationToClient(ctx, method, fields) // without a listener it is lost
			}
		},
	}
	if session := server.ClientSessionFromContext(ctx); session != nil {
		call.Session = session.SessionID()
		if told, ok := session.(server.SessionWithClientInfo); ok {
			info := told.GetClientInfo()
			call.Client.Name = strings.TrimSpace(info.Name + " " + info.Version)
		}
	}
	if call.Client.Modern {
		call.Session = "" // such a client has no session: it is one of the transport
	}
	return call, nil
}

// unchecked is the context of requests inside a 2026-07-28 request over HTTP. It hides the version
// header: with it the server would compare the other headers, which describe the outer request.
type unchecked struct{ context.Context }

func (c unchecked) Value(key any) any {
	value := c.Context.Value(key)
	headers, ok := value.(http.Header)
	if !ok {
		return value
	}
	headers = headers.Clone()
	headers.Del("Mcp-Protocol-Version")
	return headers
}

// answered is the proxy tool's answer in the server's types.
func answered(result tool.Result, err error) (*mcp.CallToolResult, error) {
	var rpc *tool.RPCError
	switch {
	case errors.As(err, &rpc) && rpc.Code == tool.CodeURLElicitation:
		var required mcp.URLElicitationRequiredError
		if json.Unmarshal(rpc.Data, &required) == nil {
			return nil, required
		}
		fallthrough
	case rpc != nil:
		return typedResult(rpcResult(rpc)) // the server would make it an internal error
	case err != nil:
		return nil, err
	}
	return typedResult(result)
}

// typedResult is a result in the server's type; content and values keep their bytes.
func typedResult(raw tool.Result) (*mcp.CallToolResult, error) {
	result := &mcp.CallToolResult{}
	if err := json.Unmarshal(set(json.RawMessage(raw), "content", []byte("[]")), result); err != nil {
		return nil, fmt.Errorf("the answer is not a result: %w", err)
	}
	if result.Meta != nil {
		for key, value := range rawjson.Members(rawjson.Member(json.RawMessage(raw), "_meta")) {
			if _, ok := result.Meta.AdditionalFields[key]; ok {
				result.Meta.AdditionalFields[key] = value
			}
		}
	}
	result.RawStructuredContent = rawjson.Member(json.RawMessage(raw), "structuredContent")
	result.Content = []mcp.Content{}
	for item := range rawjson.Elements(rawjson.Member(json.RawMessage(raw), "content")) {
		result.Content = append(result.Content, content{raw: item})
	}
	return result, nil
}

// content is a content item as bytes. The embedded interface makes it one.
type content struct {
	mcp.TextContent
	raw json.RawMessage
}

// MarshalJSON returns the bytes.
func (c content) MarshalJSON() ([]byte, error) { return c.raw, nil }

// attached is a server as a Source. It asks with messages, as clients do.
type attached struct {
	server *server.MCPServer
	own    string // name of the proxy tool
	last   atomic.Uint64
}

// request sends a message and returns the result.
func (a *attached) request(ctx context.Context, method mcp.MCPMethod, params json.RawMessage) (json.RawMessage, error) {
	var message rawjson.Object
	message.AddText("jsonrpc", mcp.JSONRPC_VERSION)
	message.AddText("id", "proxytool-"+strconv.FormatUint(a.last.Add(1), 10)) // unlike any ID of the session's client
	message.AddText("method", string(method))
	message.Add("params", params)
	switch response := a.server.HandleMessage(ctx, message.JSON()).(type) {
	case mcp.JSONRPCResponse:
		result, err := json.Marshal(response.Result)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		return result, nil
	case mcp.JSONRPCError:
		failed := &tool.RPCError{Code: response.Error.Code, Message: response.Error.Message}
		if data, err := json.Marshal(response.Error.Data); err == nil && response.Error.Data != nil {
			failed.Data = data
		}
		return nil, failed
	}
	return nil, fmt.Errorf("%s: the server did not answer", method)
}

// Call calls a tool, reads a resource or gets a prompt.
func (a *attached) Call(ctx context.Context, call *tool.Call, t Type, path string, arguments json.RawMessage) (json.RawMessage, error) {
	var params rawjson.Object
	for name, value := range rawjson.Members(call.Params) {
		switch name {
		case "_meta", "inputResponses", "requestState": // of a client that answers by calling again
			params.Add(name, value)
		}
	}
	if t == TypeResource {
		uri, err := a.uriOf(ctx, call, path)
		if err != nil {
			return nil, err
		}
		params.AddText("uri", uri)
		return a.request(ctx, mcp.MethodResourcesRead, params.JSON())
	}
	params.AddText("name", path)
	if arguments != nil {
		params.Add("arguments", arguments)
	}
	if t == TypePrompt {
		return a.request(ctx, mcp.MethodPromptsGet, params.JSON())
	}
	if path == a.own {
		return nil, args.Refuse("%s cannot be called through itself", a.own)
	}
	return a.request(ctx, mcp.MethodToolsCall, params.JSON())
}

// uriOf returns the URI for a path: itself, unless it is a resource's name. Only a path that may be no
// URI is looked up.
func (a *attached) uriOf(ctx context.Context, call *tool.Call, path string) (string, error) {
	if IsURI(path) {
		return path, nil
	}
	items, err := a.List(ctx, call, TypeResource, nil)
	if err != nil {
		return "", err
	}
	i := Find(items, path)
	if i < 0 {
		return path, nil // the server may have unlisted resources
	}
	return items[i].Path, items[i].Callable()
}

// templateOf returns the index of the template that makes a URI, -1 without one.
func templateOf(items []Item, uri string) int {
	return slices.IndexFunc(items, func(item Item) bool {
		if !isTemplate(item.Raw) {
			return false
		}
		parsed, err := uritemplate.New(item.Path)
		return err == nil && parsed.Match(uri) != nil
	})
}

// Info finds a definition by its path; for an unlisted URI, the template that makes it.
func (a *attached) Info(ctx context.Context, call *tool.Call, t Type, path string) (Item, error) {
	items, err := a.List(ctx, call, t, nil)
	if err != nil {
		return Item{}, err
	}
	if i := Find(items, path); i >= 0 {
		return items[i], nil
	}
	if i := templateOf(items, path); t == TypeResource && i >= 0 {
		return items[i], nil
	}
	paths := make([]string, len(items))
	for i, item := range items {
		paths[i] = item.Path
	}
	return Item{}, Unknown(t, path, nearest.Names(path, paths, 3, nearest.Close))
}

// List lists the calling session's items, without the proxy tool.
func (a *attached) List(ctx context.Context, call *tool.Call, t Type, filter *Filter) ([]Item, error) {
	if filter != nil && filter.Server != "" {
		return nil, args.Refuse("filter.server: this server has no servers behind it")
	}
	var items []Item
	for _, from := range lists[t] {
		some, err := a.list(ctx, call, from)
		if err != nil {
			return nil, err
		}
		items = append(items, some...)
	}
	return slices.DeleteFunc(items, func(item Item) bool {
		return t == TypeTool && item.Path == a.own || !filter.passes(item)
	}), nil
}

// source is where definitions are listed.
type source struct {
	method mcp.MCPMethod
	member string // of the result
	kind   tool.Kind
}

var lists = map[Type][]source{
	TypeTool: {{mcp.MethodToolsList, "tools", tool.KindTool}},
	TypeResource: {
		{mcp.MethodResourcesList, "resources", tool.KindResource},
		{mcp.MethodResourcesTemplatesList, "resourceTemplates", tool.KindTemplate},
	},
	TypePrompt: {{mcp.MethodPromptsList, "prompts", tool.KindPrompt}},
}

// list returns all pages of a list.
func (a *attached) list(ctx context.Context, call *tool.Call, from source) ([]Item, error) {
	var items []Item
	meta := rawjson.Member(call.Params, "_meta")
	for cursor := ""; ; {
		var params rawjson.Object
		if meta != nil {
			params.Add("_meta", meta)
		}
		if cursor != "" {
			params.AddText("cursor", cursor)
		}
		result, err := a.request(ctx, from.method, params.JSON())
		var rpc *tool.RPCError
		if errors.As(err, &rpc) && rpc.Code == tool.CodeMethodNotFound {
			return nil, nil // the server has no such items
		}
		if err != nil {
			return nil, err
		}
		for raw := range rawjson.Elements(rawjson.Member(result, from.member)) {
			items = append(items, Item{Path: rawjson.Text(rawjson.Member(raw, from.kind.Key())), Raw: raw})
		}
		next := rawjson.Text(rawjson.Member(result, "nextCursor"))
		if next == "" || next == cursor {
			break
		}
		cursor = next
	}
	if from.kind == tool.KindResource || from.kind == tool.KindTemplate {
		// The server sorts by name alone: items of one name change places, and pages would not fit
		// together.
		slices.SortStableFunc(items, func(a, b Item) int {
			return cmp.Or(cmp.Compare(nameOf(a), nameOf(b)), cmp.Compare(a.Path, b.Path))
		})
	}
	return items, nil
}

// passes reports whether an item has the prefix, all tags as words, and all words of the query.
func (f *Filter) passes(item Item) bool {
	if f == nil {
		return true
	}
	if !strings.HasPrefix(item.Path, f.Prefix) {
		return false
	}
	said := item.Path
	for _, member := range []string{"name", "title", "description"} {
		said += " " + rawjson.Text(rawjson.Member(item.Raw, member))
	}
	said = strings.ToLower(said)
	for word := range strings.FieldsSeq(strings.ToLower(f.Query)) {
		if !strings.Contains(said, word) {
			return false
		}
	}
	words := wordsOf(said)
	for _, tag := range f.Tags {
		for _, word := range wordsOf(strings.ToLower(tag)) {
			if !slices.Contains(words, word) {
				return false
			}
		}
	}
	return true
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
