package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"toolfinch/internal/postgres"
	"toolfinch/tool"
)

// somewhatReal makes n definitions of the size real servers have, 1.5 kB.
func somewhatReal(t testing.TB, server string, n int) []*tool.Def {
	t.Helper()
	defs := make([]*tool.Def, n)
	for i := range defs {
		raw := fmt.Sprintf(`{"name":"tool_%d","description":%q,"inputSchema":{"type":"object","properties":{%s}},"annotations":{"readOnlyHint":true}}`,
			i, strings.Repeat("Searches the things of a project. ", 12),
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`"field_%d":{"type":"string","description":"one of the fields that narrow the search"},`, i), 10), ","))
		def, err := tool.ParseDef(server, json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		defs[i] = def
	}
	return defs
}

func BenchmarkTools(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b, b.TempDir())
			for i := range n / 100 {
				name := fmt.Sprintf("server%d", i)
				if _, err := s.PutServer(b.Context(), Upstream{Name: name}, somewhatReal(b, name, 100), nil); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				defs, err := s.Tools(b.Context())
				if err != nil || len(defs) != n {
					b.Fatal(len(defs), err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{0, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			s := open(b, dir)
			for i := range n / 100 {
				name := fmt.Sprintf("server%d", i)
				if _, err := s.PutServer(b.Context(), Upstream{Name: name}, somewhatReal(b, name, 100), nil); err != nil {
					b.Fatal(err)
				}
			}
			s.Close()
			for b.Loop() {
				s, err := Open(b.Context(), dir, slog.New(slog.DiscardHandler))
				if err != nil || !s.Durable() {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

func BenchmarkPutServer(b *testing.B) {
	for _, kind := range []string{"changed", "unchanged"} {
		for _, n := range []int{100, 5000} {
			for name, review := range map[string]*Review{"plain": nil, "reviewed": strict} {
				b.Run(fmt.Sprint(kind, "/", n, "/", name), func(b *testing.B) {
					s := open(b, b.TempDir())
					defs := somewhatReal(b, "github", n)
					if _, err := s.PutServer(b.Context(), Upstream{Name: "github"}, defs, review); err != nil {
						b.Fatal(err)
					}
					for i := 0; b.Loop(); i++ {
						if kind == "changed" {
							for _, d := range defs {
								d.Hash = fmt.Sprint(i, d.ID.Name)
							}
						}
						if _, err := s.PutServer(b.Context(), Upstream{Name: "github"}, defs, review); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// The first list of 5,000 tools, which becomes the baseline.
func BenchmarkBaseline(b *testing.B) {
	defs := somewhatReal(b, "github", 5000)
	for name, review := range map[string]*Review{"plain": nil, "reviewed": strict} {
		b.Run(name, func(b *testing.B) {
			s := open(b, b.TempDir())
			for b.Loop() {
				if _, err := s.KeepServers(b.Context(), nil); err != nil {
					b.Fatal(err)
				}
				if _, err := s.PutServer(b.Context(), Upstream{Name: "github"}, defs, review); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What start-up asks for beside definitions.
func BenchmarkUnpinned(b *testing.B) {
	s := open(b, b.TempDir())
	for i := range 50 {
		name := fmt.Sprintf("server%d", i)
		if _, err := s.PutServer(b.Context(), Upstream{Name: name}, somewhatReal(b, name, 100), strict); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if all, err := s.Pins().Unpinned(b.Context()); err != nil || len(all) > 0 {
			b.Fatal(all, err)
		}
	}
}

// SQLite and PostgreSQL side by side.
func BenchmarkDatabases(b *testing.B) {
	const n = 5000
	defs := somewhatReal(b, "github", n)
	vectors := map[Key][]float32{}
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key{byte(i), byte(i >> 8)}
		vectors[keys[i]] = make([]float32, 384)
	}
	for name, place := range map[string]func(testing.TB) string{"sqlite": func(t testing.TB) string { return t.TempDir() }, "postgres": postgres.Start} {
		s := open(b, place(b))
		for _, op := range []struct {
			name string
			do   func() error
		}{
			{"first list", func() error {
				_, err := s.KeepServers(b.Context(), nil)
				if err == nil {
					_, err = s.PutServer(b.Context(), Upstream{Name: "github"}, defs, strict)
				}
				return err
			}},
			{"unchanged list", func() error {
				_, err := s.PutServer(b.Context(), Upstream{Name: "github"}, defs, strict)
				return err
			}},
			{"read tools", func() error { _, err := s.Tools(b.Context()); return err }},
			{"put vectors", func() error { return s.PutVectors(b.Context(), "m", vectors) }},
			{"read vectors", func() error { _, err := s.Vectors(b.Context(), "m", keys); return err }},
		} {
			b.Run(op.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := op.do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
