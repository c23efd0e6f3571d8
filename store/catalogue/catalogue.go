// Package catalogue fills stores with tools for measurements. It measures nothing.
package catalogue

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
)

// Annotated returns the folder of annotated sets of real definitions, beside the repository.
func Annotated(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "toolfinch")); err == nil {
			return filepath.Join(dir, "../shared/retrieval")
		}
		if dir == filepath.Dir(dir) {
			err = fs.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal(err)
	return ""
}

// Fill puts tools of several servers into the store of a folder, and returns the servers' names. It uses renamed
// definitions of real servers, if present, else invented ones. Only the last tool of a server contains the Word of
// its number.
func Fill(t testing.TB, dir string, tools, servers int) (names []string) {
	t.Helper()
	db := must.Get(store.Open(t.Context(), dir, slog.New(slog.DiscardHandler)))(t)
	defer db.Close()
	raws := definitions(t)
	for s := range servers {
		name := fmt.Sprint("server", s)
		var defs []*tool.Def
		counts := map[string]int{}
		add := func(raw []byte) {
			def := must.Get(tool.ParseDef(name, raw))(t)
			defs, counts[def.Hash] = append(defs, def), len(def.Raw)/4
		}
		for i := 1; i < tools/servers; i++ {
			n := s*(tools/servers) + i
			raw := must.Get(rawjson.Set(raws[n%len(raws)], "name", fmt.Appendf(nil, `"tool_%d_%s"`, n, []string{"read", "write", "find"}[n%3])))(t)
			add(raw)
		}
		add(fmt.Appendf(nil, `{"name":"grow_%d","description":"Grows xylophones in %s","inputSchema":{"type":"object"}}`, s, Word(s)))
		must.Get(db.PutServer(t.Context(), store.Upstream{Name: name, Capabilities: json.RawMessage(`{"tools":{}}`)}, defs, nil))(t)
		must.Do(t, db.PutTokens(t.Context(), counts))
		names = append(names, name)
	}
	return names
}

// Word returns the word that only the last tool of a server contains.
func Word(server int) string { return fmt.Sprint("orchard", server) }

func definitions(t testing.TB) (raws []json.RawMessage) {
	t.Helper()
	for _, set := range []string{"livemcp", "mcpreal"} {
		text, err := os.ReadFile(filepath.Join(Annotated(t), set, "tools.jsonl"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			raws = append(raws, json.RawMessage(strings.TrimSpace(line)))
		}
	}
	if raws != nil {
		return raws
	}
	for i := range 5000 {
		raws = append(raws, fmt.Appendf(nil, `{"name":"do_%d","description":"Does thing %d of group %d, and says what word%d came of it. %s","inputSchema":{"type":"object","properties":{"id%d":{"type":"string","description":"Which one"}}}}`,
			i, i, i%70, i%900, strings.Repeat("It is long. ", i%30), i%50))
	}
	return raws
}
