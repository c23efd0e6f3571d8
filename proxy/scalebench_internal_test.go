package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/store/catalogue"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
)

// scales are the sizes of catalogues of BenchmarkStart and BenchmarkChange.
var scales = []struct {
	name           string
	tools, servers int
}{{"1k", 1000, 20}, {"5k", 5000, 50}, {"100k", 100_000, 100}}

// benchStore is a store with tools of servers that cannot be reached.
func benchStore(b testing.TB, tools, servers int) *configs.Config {
	b.Helper()
	config := &configs.Config{DataDir: b.TempDir(), TopK: 5, Routing: configs.RoutingAuto}
	config.Embed.Kind, config.Changes = "BM25", map[string]pins.Mode{}
	for _, name := range catalogue.Fill(b, config.DataDir, tools, servers) {
		config.Changes[name] = pins.Allow
		config.Servers = append(config.Servers, upstream.Settings{Name: name, URL: "http://127.0.0.1:9/mcp"})
	}
	return config
}

// openBench opens a proxy over the store and waits until all is found.
func openBench(b testing.TB, config *configs.Config) (p *Proxy, end func()) {
	b.Helper()
	p = must.Get(Open(b.Context(), config, WithLogger(slog.New(slog.DiscardHandler))))(b)
	last := len(config.Servers) - 1
	for p.partial || !finds(b, p, catalogue.Word(last)) {
		must.Do(b, p.loop.refresh(b.Context(), nil))
	}
	return p, func() {
		must.Do(b, p.Close())
	}
}

func finds(b testing.TB, p *Proxy, word string) bool {
	found := must.Get(p.Retriever().Search(b.Context(), retrieve.Query{Text: word, Limit: 5}))(b)
	return len(found.Hits) > 0 && strings.Contains(found.Hits[0].Name, "grow_")
}

// BenchmarkStart is from a store, opened, to all of its tools searched: once nothing but
// definitions is in it, and once the index is, too.
func BenchmarkStart(b *testing.B) {
	for _, scale := range scales {
		config := benchStore(b, scale.tools, scale.servers)
		b.Run("definitions/"+scale.name, func(b *testing.B) {
			for b.Loop() {
				_, end := openBench(b, config)
				b.StopTimer()
				end()
				b.StartTimer()
			}
		})
		p, end := openBench(b, config)
		must.Do(b, p.segments.keep(b.Context()))
		end()
		b.Run("index/"+scale.name, func(b *testing.B) {
			for b.Loop() {
				_, end := openBench(b, config)
				b.StopTimer()
				end()
				b.StartTimer()
			}
		})
	}
}

// listed is a list of a server as it was, or with text as the description of its last tool.
func listed(b *testing.B, p *Proxy, server, text string) upstream.Change {
	change := upstream.Change{Server: server, Capabilities: json.RawMessage(`{"tools":{}}`)}
	for _, def := range p.known.byServer[server].defs {
		again := must.Get(tool.ParseDef(server, def.Raw))(b)
		change.Defs = append(change.Defs, again)
	}
	if text != "" {
		def := must.Get(tool.ParseDef(server, fmt.Appendf(nil, `{"name":"grow_x","description":%q,"inputSchema":{"type":"object"}}`, text)))(b)
		change.Defs[len(change.Defs)-1] = def
	}
	return change
}

// BenchmarkChange is from the list of one server, in which one tool is another, to that
// tool being found; unchanged/ is a list that is as it was.
func BenchmarkChange(b *testing.B) {
	for _, scale := range scales {
		config := benchStore(b, scale.tools, scale.servers)
		p, end := openBench(b, config)
		for _, s := range config.Servers { // the first lists: nothing is complete before
			p.known.listedThisRun[s.Name] = true
		}
		for _, kind := range []string{"unchanged/", "changed/"} {
			b.Run(kind+scale.name, func(b *testing.B) {
				b.StopTimer()
				for n := range b.N {
					text := ""
					if kind == "changed/" {
						text = fmt.Sprint("Grows zithers, unheard", n)
					}
					change := listed(b, p, config.Servers[n%len(config.Servers)].Name, text)
					b.StartTimer()
					p.loop.take(context.Background(), []upstream.Change{change})
					b.StopTimer()
					if text != "" && !finds(b, p, fmt.Sprint("unheard", n)) {
						b.Fatal("the changed tool is not found")
					}
				}
			})
		}
		end()
	}
}

// BenchmarkSearchBesideChanges is a search while nothing changes, and while a server's
// list changes twenty times a second.
func BenchmarkSearchBesideChanges(b *testing.B) {
	for _, scale := range scales {
		config := benchStore(b, scale.tools, scale.servers)
		p, end := openBench(b, config)
		ctx, stop := context.WithCancel(b.Context())
		var runs sync.WaitGroup
		runs.Go(func() { _ = p.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) })
		for _, kind := range []string{"alone/", "changes/"} {
			b.Run(kind+scale.name, func(b *testing.B) {
				ctx, stop := context.WithCancel(ctx)
				var changes sync.WaitGroup
				if kind == "changes/" {
					changes.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							_ = p.loop.do(ctx, func(ctx context.Context) {
								p.loop.take(ctx, []upstream.Change{listed(b, p, config.Servers[n%len(config.Servers)].Name, fmt.Sprint("Grows zithers, unheard", n))})
							})
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
				var took []time.Duration
				for n := 0; b.Loop(); n++ {
					text := []string{"create an issue in a repository", "send a message to a channel", "what is the weather tomorrow", "read a file"}[n%4]
					began := time.Now()
					must.Get(p.Retriever().Search(ctx, retrieve.Query{Text: text, Limit: 5}))(b)
					took = append(took, time.Since(began))
				}
				stop()
				changes.Wait()
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			})
		}
		stop()
		runs.Wait()
		end()
	}
}

// BenchmarkAway is a search while all servers are away, and the part of it that looks how
// they are.
func BenchmarkAway(b *testing.B) {
	config := benchStore(b, 1000, 100)
	p, end := openBench(b, config)
	defer end()
	ctx, stop := context.WithCancel(b.Context())
	var runs sync.WaitGroup
	defer runs.Wait()
	defer stop()
	runs.Go(func() { _ = p.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) })
	await.True(b, func() bool { return p.health().Failed == len(config.Servers) })
	b.Run("search", func(b *testing.B) {
		for b.Loop() {
			must.Get(p.Retriever().Search(ctx, retrieve.Query{Text: "create an issue in a repository", Limit: 5}))(b)
		}
	})
	b.Run("health", func(b *testing.B) {
		for b.Loop() {
			p.health()
		}
	})
}
