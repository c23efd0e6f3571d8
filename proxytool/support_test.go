package proxytool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
	"toolfinch/tool"
)

// shelf is a Source of fixed definitions and answers, and remembers its calls.
type shelf struct {
	items   map[proxytool.Type][]proxytool.Item
	answers map[string]string // by path: the result of a call
	errs    map[string]error
	before  func(ctx context.Context, path string) // of each call

	mu    sync.Mutex // guards calls
	calls []asked
}

type asked struct {
	call *tool.Call
	path string
	args string
}

func (s *shelf) List(_ context.Context, _ *tool.Call, t proxytool.Type, f *proxytool.Filter) ([]proxytool.Item, error) {
	var out []proxytool.Item
	for _, item := range s.items[t] {
		if f == nil || strings.HasPrefix(item.Path, f.Prefix) {
			out = append(out, item)
		}
	}
	return out, s.errs["list"]
}

func (s *shelf) Info(_ context.Context, _ *tool.Call, t proxytool.Type, path string) (proxytool.Item, error) {
	for _, item := range s.items[t] {
		if item.Path == path {
			return item, nil
		}
	}
	return proxytool.Item{}, fmt.Errorf("%w: %s", tool.ErrNotFound, path)
}

func (s *shelf) Call(ctx context.Context, call *tool.Call, _ proxytool.Type, path string, args json.RawMessage) (json.RawMessage, error) {
	if s.before != nil {
		s.before(ctx, path)
	}
	s.mu.Lock()
	s.calls = append(s.calls, asked{call, path, string(args)})
	s.mu.Unlock()
	if err := s.errs[path]; err != nil {
		return nil, err
	}
	return json.RawMessage(s.answers[path]), nil
}

func items(raw ...string) []proxytool.Item {
	out := make([]proxytool.Item, len(raw))
	for i, r := range raw {
		path := ""
		for _, key := range []string{"name", "uri", "uriTemplate"} {
			if value := rawjson.Text(rawjson.Member([]byte(r), key)); value != "" {
				path = value
			}
		}
		out[i] = proxytool.Item{Path: path, Raw: json.RawMessage(r)}
	}
	return out
}

func tools(n int) []proxytool.Item {
	raw := make([]string, n)
	for i := range raw {
		raw[i] = fmt.Sprintf(`{"name":"t%02d"}`, i)
	}
	return items(raw...)
}

// use calls the proxy tool over a source.
func use(t testing.TB, source proxytool.Source, arguments string) json.RawMessage {
	t.Helper()
	result, err := proxytool.New("proxy", source, nil).Handler(t.Context(), &tool.Call{Name: "proxy", Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s: %v", arguments, err)
	}
	if !json.Valid(result) {
		t.Fatalf("%s: not JSON: %s", arguments, result)
	}
	return json.RawMessage(result)
}

// only is the one content item of a result.
func only(t testing.TB, result json.RawMessage) json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	for item := range rawjson.Elements(rawjson.Member(result, "content")) {
		all = append(all, item)
	}
	if len(all) != 1 {
		t.Fatalf("%d content items, want 1: %s", len(all), result)
	}
	return all[0]
}

// member follows names into objects.
func member(raw json.RawMessage, path ...string) string {
	for _, name := range path {
		raw = rawjson.Member(raw, name)
	}
	return string(raw)
}

func textOf(raw json.RawMessage, path ...string) string {
	return rawjson.Text([]byte(member(raw, path...)))
}

func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func errorText(t testing.TB, result json.RawMessage) string {
	t.Helper()
	if !tool.Result(result).Failed() {
		t.Fatalf("not an error: %s", result)
	}
	return rawjson.Text(tool.Result(result).Value())
}
