package retrieve

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"toolfinch/embed"
	"toolfinch/internal/must"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
)

// BenchmarkDiscover is discover_tools over some 5,000 tools, those of the real
// servers several times.
func BenchmarkDiscover(b *testing.B) {
	var servers []Server
	real := realServers(b)
	for copies := 0; tools(servers) < 5000; copies++ {
		for _, s := range real {
			again := Server{Name: s.Name, Description: s.Description}
			if copies > 0 {
				again.Name = fmt.Sprintf("%s-%d", s.Name, copies)
			}
			for _, t := range s.Tools {
				again.Tools = append(again.Tools, tool.Of([]*tool.Def{def(b, again.Name, string(t.Def.Raw))}, echo)...)
			}
			servers = append(servers, again)
		}
	}
	catalog := newCatalog(b, servers)
	catalog.CountTokens(b.Context())
	fake := newFake("fake:1")
	fake.dim = 384
	for _, mode := range []string{"words", "hybrid"} {
		r := New(catalog, Settings{QueryTimeout: time.Hour})
		if mode == "hybrid" {
			embedAll(b, catalog, fake, &storeInMemory{})
			r.UseVectors(queriesFunc(func(ctx context.Context, texts []string) ([][]float32, error) {
				return fake.Embed(ctx, embed.Query, texts)
			}), "")
		}
		for _, arguments := range []string{
			`{"query":"create an issue in a repository and list the newest pull requests"}`,
			`{"query":"create an issue in a repository and list the newest pull requests","limit":50}`,
			`{"query":"create an issue in a repository and list the newest pull requests","tags":["github"]}`,
			`{"query":"create an issue in a repository and list the newest pull requests","tags":["read-only"]}`,
			`{"query":"create an issue in a repository and list the newest pull requests","tags":["no tool has this"]}`,
			`{"tags":["read-only","repository"],"limit":50}`,
		} {
			q := must.Get(r.ParseDiscover(json.RawMessage(arguments)))(b)
			b.Run(fmt.Sprintf("%s/%d/%d/%v", mode, len(q.Text), q.Limit, q.Tags), func(b *testing.B) {
				b.ReportAllocs()
				call := &tool.Call{Session: "s"}
				for b.Loop() {
					must.Get(r.Discover(b.Context(), call, q))(b)
				}
			})
		}
	}
}

// BenchmarkTermsOf is what the first look at a tool for tags takes.
func BenchmarkTermsOf(b *testing.B) {
	catalog := newCatalog(b, realServers(b))
	all := catalog.Tools()
	for b.Loop() {
		for _, t := range all {
			termsOf(t)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(all)), "µs/tool")
}

func tools(servers []Server) (n int) {
	for _, s := range servers {
		n += len(s.Tools)
	}
	return n
}

// BenchmarkExecute is what execute_tool adds to a call of the tool: the gate, the
// check of the arguments and the call itself.
func BenchmarkExecute(b *testing.B) {
	v := newGated(b, gate.Budget{})
	call := &tool.Call{Principal: "ann", Arguments: json.RawMessage(`{"tool_id":"github_create_issue","arguments":{"title":"t","labels":["a"]}}`)}
	must.Get(v.Provision(b.Context(), call, ProvisionRequest{IDs: []string{"github_create_issue"}}))(b)
	b.ReportAllocs()
	for b.Loop() {
		must.Get(v.tools[ExecuteTool].Handler(b.Context(), call))(b)
	}
}
