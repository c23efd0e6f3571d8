// Package everyday_test measures search with what people ask agents every day, over the tools of real servers.
package everyday_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"toolfinch/embed"
	"toolfinch/embed/models"
	"toolfinch/index"
	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
)

// request is a line of requests.jsonl. Each need is a list of tools, "server.name", any of which serves it. The right
// tools were noted before the first search; a request of class "nothing" has none.
type request struct {
	Class   string
	Request string
	Right   [][]string
}

// limit is the length of an answer.
const limit = 5

// TestEveryday prints the share of right answers by class and, with -v, each wrong answer. Its floors are a little
// under what was reached.
func TestEveryday(t *testing.T) {
	servers := realServers(t)
	requests := readRequests(t, servers)
	catalog, err := retrieve.NewCatalog(func(*tool.Def) tool.Handler { return nil }).
		With(t.Context(), retrieve.Contents{Servers: servers, Reserved: retrieve.Reserved()})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, catalog.Close()) })

	t.Run("words", func(t *testing.T) {
		measure(t, retrieve.New(catalog, retrieve.Settings{}), requests, tally{first: .78, all: .89, nothing: .80})
	})
	t.Run("hybrid", func(t *testing.T) {
		model, err := embed.Open(t.Context(), embed.Settings{Kind: embed.KindHF}, slog.New(slog.DiscardHandler))
		if errors.Is(err, models.ErrMissing) && os.Getenv("TOOLFINCH_TEST_REQUIRE") != "all" {
			t.Skip("the model is not on this machine: toolfinch model pull")
		}
		must.Do(t, err)
		defer model.Close()
		vectors := must.Get(store.Open(t.Context(), filepath.Join(must.Get(os.UserCacheDir())(t), "toolfinch", "eval"), slog.New(slog.DiscardHandler)))(t) // as toolfinch eval: a second run embeds nothing
		defer vectors.Close()
		must.Do(t, catalog.Embed(t.Context(), embed.NewCache(model, index.TextVersion, vectors), nil))
		r := retrieve.New(catalog, retrieve.Settings{QueryTimeout: time.Hour})
		r.UseVectors(queries{model}, "")
		measure(t, r, requests, tally{first: .78, all: .88, nothing: .85})
	})
}

// tally counts requests by result; as a floor its fields are shares.
type tally struct{ n, first, five, all, nothing float64 }

// add counts an answer and reports whether its first hit is right and no need is missing.
func (c *tally) add(r request, found retrieve.Found) bool {
	c.n++
	if len(r.Right) == 0 {
		quiet := len(found.Hits) == 0 || found.Confidence < retrieve.Confident
		c.nothing += one(quiet)
		return quiet
	}
	served := 0
	for _, need := range r.Right {
		served += int(one(slices.ContainsFunc(found.Hits, func(h retrieve.Hit) bool { return slices.Contains(need, h.Def.ID.String()) })))
	}
	first := len(found.Hits) > 0 && slices.Contains(slices.Concat(r.Right...), found.Hits[0].Def.ID.String())
	all := served == len(r.Right)
	c.first += one(first)
	c.five += one(served > 0)
	c.all += one(all)
	return first && all
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// measure asks every request and checks the shares of all classes together.
func measure(t *testing.T, r *retrieve.Retriever, requests []request, floor tally) {
	classes := map[string]*tally{}
	var order []string
	var some, none tally
	var wrong strings.Builder
	for _, q := range requests {
		found, err := r.Search(t.Context(), retrieve.Query{Text: q.Request, Limit: limit})
		must.Do(t, err)
		if classes[q.Class] == nil {
			classes[q.Class] = &tally{}
			order = append(order, q.Class)
		}
		whole := &some
		if len(q.Right) == 0 {
			whole = &none
		}
		whole.add(q, found)
		if !classes[q.Class].add(q, found) {
			fmt.Fprintf(&wrong, "%s: %q, confidence %.2f\n\twant %v\n\tgot ", q.Class, q.Request, found.Confidence, q.Right)
			for _, hit := range found.Hits {
				fmt.Fprintf(&wrong, " %s", hit.Def.ID)
			}
			wrong.WriteByte('\n')
		}
	}

	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "class\tn\tfirst\tfive\tall\tnothing")
	row := func(class string, c tally) {
		if class == "nothing" {
			fmt.Fprintf(table, "%s\t%.0f\t\t\t\t%.2f\n", class, c.n, c.nothing/c.n)
			return
		}
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t\n", class, c.n, c.first/c.n, c.five/c.n, c.all/c.n)
	}
	for _, class := range order {
		row(class, *classes[class])
	}
	row("all with a tool", some)
	table.Flush()
	t.Logf("\n%s\nnot first, or not every need among %d:\n%s", out.String(), limit, wrong.String())

	for what, share := range map[string][2]float64{
		"first":   {some.first / some.n, floor.first},
		"all":     {some.all / some.n, floor.all},
		"nothing": {none.nothing / none.n, floor.nothing},
	} {
		if share[0] < share[1] {
			t.Errorf("%s: %.3f of the requests, want %.3f", what, share[0], share[1])
		}
	}
}

func readRequests(t *testing.T, servers []retrieve.Server) (out []request) {
	known := map[string]bool{}
	for _, s := range servers {
		for _, tool := range s.Tools {
			known[tool.Def.ID.String()] = true
		}
	}
	for line := range strings.Lines(must.Read(t, "requests.jsonl")) {
		var r request
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, id := range slices.Concat(r.Right...) {
			if !known[id] {
				t.Errorf("%q: there is no tool %s", r.Request, id)
			}
		}
		out = append(out, r)
	}
	return out
}

// realServers reads the recorded lists, with the short names that people give servers: github, not
// modelcontextprotocol__server-github. A name that is taken gets the publisher in front.
func realServers(t *testing.T) (servers []retrieve.Server) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "realtools", "*.json"))
	must.Do(t, err)
	if len(files) == 0 {
		t.Skip("the definitions of real servers are not beside the repository (shared/realtools)")
	}
	taken := map[string]bool{}
	for _, file := range files {
		publisher, pkg := "", strings.TrimSuffix(filepath.Base(file), ".json")
		if i := strings.LastIndex(pkg, "__"); i >= 0 {
			publisher, pkg = pkg[:i], pkg[i+len("__"):]
		}
		name := strings.Join(slices.DeleteFunc(strings.Split(pkg, "-"), func(word string) bool {
			return slices.Contains([]string{"mcp", "server", "developer", "atlassian"}, word)
		}), "-")
		if name == "" {
			name = publisher
		}
		if taken[name] {
			name = publisher + "-" + name
		}
		taken[name] = true

		var listed struct{ Tools []json.RawMessage }
		must.Do(t, json.Unmarshal([]byte(must.Read(t, file)), &listed))
		server := retrieve.Server{Name: name}
		for _, raw := range listed.Tools {
			server.Tools = append(server.Tools, &tool.Tool{Def: must.Get(tool.ParseDef(name, raw))(t)})
		}
		servers = append(servers, server)
	}
	return servers
}

// queries embeds requests.
type queries struct{ embedder embed.Embedder }

func (q queries) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return q.embedder.Embed(ctx, embed.Query, texts)
}
