// Package demo owns the built-in MCP servers (files, notes, clock, math and text) and the demo client. The proxy treats
// the servers like all others.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Server is a built-in MCP server. New makes a server that reads and writes files only in dir, which must exist; the
// returned function closes the opened files. No server uses the network.
type Server struct {
	Name, Description string
	New               func(dir string) (*server.MCPServer, func() error, error)
}

// Servers returns the built-in servers.
func Servers() []Server {
	return []Server{
		{"files", "Files and folders in one place: read, write, list, search, delete.", newFiles},
		{"notes", "A notebook: short notes with tags, and full text search.", newNotes},
		{"clock", "Time, time zones, dates and calendars.", newClock},
		{"math", "Arithmetic, unit conversion and prime factors.", newMath},
		{"text", "Text tools: count, compare, encode, hash, JSON.", newText},
	}
}

// ErrUnknownServer is wrapped by Serve's error for a name that no built-in server has.
var ErrUnknownServer = errors.New("no such built-in server")

// Serve runs the named built-in server over in and out until in ends. It makes the folder dir if it does not exist.
func Serve(ctx context.Context, name, dir string, in io.Reader, out io.Writer) (err error) {
	all := Servers()
	i := slices.IndexFunc(all, func(s Server) bool { return s.Name == name })
	if i < 0 {
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		return fmt.Errorf("%w: %q; there are %s", ErrUnknownServer, name, strings.Join(names, ", "))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s, closeServer, err := all[i].New(dir)
	if err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, closeServer()) }()
	return server.NewStdioServer(s).Listen(ctx, in, out)
}

func newServer(name, instructions string) *server.MCPServer {
	return server.NewMCPServer(name, "1.0.0",
		server.WithToolCapabilities(true),
		server.WithInstructions(instructions),
		server.WithRecovery(),
		server.WithInputSchemaValidation(),
		server.WithOutputSchemaValidation(),
	)
}

func nothingToClose() error { return nil }

// effect has the annotations of a tool. No tool is open to the world, because none reaches beyond its server's folder.
type effect struct{ readOnly, destructive, idempotent bool }

var (
	reads    = effect{readOnly: true, idempotent: true}
	draws    = effect{readOnly: true} // not idempotent: each call has another result
	adds     = effect{}
	replaces = effect{destructive: true, idempotent: true}
)

// add registers a tool. The schemas of arguments and result are derived from the types: fields without omitempty are
// required, jsonschema tags are descriptions. A string result is sent as plain text, any other result as structured
// content and as JSON text. An error becomes a tool error.
func add[In, Out any](s *server.MCPServer, name, title, description string, does effect, run func(context.Context, In) (Out, error)) {
	var none Out
	_, asText := any(none).(string)
	options := []mcp.ToolOption{
		mcp.WithToolTitle(title),
		mcp.WithDescription(description),
		mcp.WithRawInputSchema(schema[In]()),
		mcp.WithReadOnlyHintAnnotation(does.readOnly),
		mcp.WithDestructiveHintAnnotation(does.destructive),
		mcp.WithIdempotentHintAnnotation(does.idempotent),
		mcp.WithOpenWorldHintAnnotation(false),
	}
	if !asText {
		options = append(options, mcp.WithRawOutputSchema(schema[Out]()))
	}
	t := mcp.NewTool(name, options...)
	t.InputSchema = mcp.ToolInputSchema{} // removes the schema of NewTool, because a tool with two schemas cannot be listed
	s.AddTool(t, mcp.NewTypedToolHandler(func(ctx context.Context, _ mcp.CallToolRequest, in In) (*mcp.CallToolResult, error) {
		out, err := run(ctx, in)
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		if asText {
			return mcp.NewToolResultText(fmt.Sprint(out)), nil
		}
		text, err := json.Marshal(out)
		if err != nil {
			return mcp.NewToolResultErrorf("the result is no JSON: %v", err), nil
		}
		return mcp.NewToolResultStructured(json.RawMessage(text), string(text)), nil
	}))
}

// nullable matches the schema type of a Go slice or pointer. No value here is null, and many clients know only single
// types.
var nullable = regexp.MustCompile(`"type":\["null","(\w+)"\]`)

// schema derives a JSON schema from a type. It panics if a type has none; the first start of the server shows that.
func schema[T any]() json.RawMessage {
	raw, err := mcp.SchemaForRaw[T]()
	if err != nil {
		panic(err)
	}
	if !bytes.Contains(raw, []byte(`"properties"`)) { // some clients need empty properties
		raw = bytes.Replace(raw, []byte(`"type":"object"`), []byte(`"type":"object","properties":{}`), 1)
	}
	return nullable.ReplaceAll(raw, []byte(`"type":"$1"`))
}

func atMost(limit int, what, text string) error {
	if len(text) > limit {
		return fmt.Errorf("%s is %d bytes long; the limit is %d", what, len(text), limit)
	}
	return nil
}
