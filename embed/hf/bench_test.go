package hf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// realModel is the folder of the default model.
func realModel(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("MCPPROXY_MODELS_DIR")
	if dir == "" {
		cache := must.Get(os.UserCacheDir())(t)
		dir = filepath.Join(cache, "toolfinch", "models")
	}
	dir = filepath.Join(dir, "all-MiniLM-L6-v2")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		const message = "the model is not on this machine: toolfinch model pull"
		if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return dir
}

func openReal(t testing.TB) *Model {
	t.Helper()
	m := must.Get(Open(realModel(t)))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

func BenchmarkOpen(b *testing.B) {
	dir := realModel(b)
	for b.Loop() {
		m := must.Get(Open(dir))(b)
		m.Close()
	}
}

// BenchmarkEmbed has a query of 10 tokens, a tool's text of 70, and batches of
// such texts.
func BenchmarkEmbed(b *testing.B) {
	m := openReal(b)
	query := "find flights from berlin to lisbon tomorrow"
	text := strings.TrimSpace(strings.Repeat("create a new issue in the repository with a title and a body and labels ", 4)) + " and more of it still to come now"
	for _, run := range []struct {
		name  string
		texts []string
	}{{"query", []string{query}}, {"tool", []string{text}}, {"batch=64", nil}} {
		if run.texts == nil {
			for i := range 64 {
				run.texts = append(run.texts, fmt.Sprint(text[:len(text)-2], i))
			}
		}
		b.Run(run.name, func(b *testing.B) {
			for b.Loop() {
				must.Get(m.Embed(context.Background(), run.texts))(b)
			}
			b.ReportMetric(float64(len(m.tokens.encode(run.texts[0], 512))), "tokens/text")
			b.ReportMetric(float64(b.N*len(run.texts))/b.Elapsed().Seconds(), "texts/s")
		})
	}
}

// BenchmarkQueryWithClauses is a query of several steps: all of it and each.
func BenchmarkQueryWithClauses(b *testing.B) {
	m := openReal(b)
	texts := []string{
		"find flights from berlin to lisbon tomorrow, book the cheapest one and add it to my calendar",
		"find flights from berlin to lisbon tomorrow,", "book the cheapest one", "add it to my calendar",
	}
	adapted := openReal(b)
	must.Do(b, adapted.Adapt(Shipped))
	for name, m := range map[string]*Model{"plain": m, "adapted": adapted} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				must.Get(m.EmbedQueries(context.Background(), texts))(b)
			}
		})
	}
}
