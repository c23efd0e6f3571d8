// Adapter is a program that writes what an adapter of the local embedding model
// is trained on; train.py runs it and trains. Both are described in
// docs/research/retrieval.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"toolfinch/embed"
	"toolfinch/embed/hf"
	"toolfinch/embed/models"
	"toolfinch/index"
	"toolfinch/retrieve/eval"
	"toolfinch/store"
	"toolfinch/tool"
)

func main() {
	out := flag.String("out", "", "`DIR` to write to")
	seed := flag.Uint64("seed", 0, "of the random choices in keyword queries")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: adapter --out DIR NAME=DIR...\n\nEach DIR has tools.jsonl and, with queries of people, queries.jsonl; or answers to\ntools/list, one FILE.json a server.")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *seed, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "adapter:", err)
		os.Exit(1)
	}
}

// run writes three files a set: NAME.tools, the vectors of the tools as
// little-endian float32; NAME.queries and NAME.keywords, a JSON object a line
// (see example).
func run(ctx context.Context, out string, seed uint64, args []string) (err error) {
	if out == "" {
		return errors.New("give --out DIR")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	embedder, err := embed.Open(ctx, embed.Settings{Kind: embed.KindHF}, log)
	if err != nil {
		return err
	}
	dir, err := models.Locate(models.DefaultModel)
	if err != nil {
		return err
	}
	model, err := hf.Open(dir)
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	kept, err := store.Open(ctx, filepath.Join(cache, "toolfinch", "eval"), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close(), model.Close(), embedder.Close()) }()
	w := writer{out: out, seed: seed, model: model, cache: embed.NewCache(embedder, index.TextVersion, kept)}
	fmt.Println(dir) // train.py reads the model there
	for _, arg := range args {
		name, dir, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=DIR", arg)
		}
		set, err := readSet(name, dir)
		if err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		if err := w.write(ctx, set); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// readSet reads the set of a folder. It may have no queries.
func readSet(name, dir string) (*eval.Set, error) {
	set, err := eval.ReadSet(name, dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return set, err
	}
	set = &eval.Set{Name: name}
	set.Defs, err = eval.ReadTools(filepath.Join(dir, "tools.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		set.Defs, err = readLists(dir)
	}
	return set, err
}

// readLists reads the answers to tools/list in a folder; a server is named by
// its file.
func readLists(dir string) (defs []*tool.Def, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no tools.jsonl and no answer to tools/list in %s", dir)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var list struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, raw := range list.Tools {
			def, err := tool.ParseDef(strings.TrimSuffix(filepath.Base(file), ".json"), raw)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			defs = append(defs, def)
		}
	}
	return defs, nil
}

// writer writes sets.
type writer struct {
	out   string
	seed  uint64
	model *hf.Model
	cache *embed.Cache
}

// example is a query for training: its tokens, and the tools that serve it by
// their places in the set.
type example struct {
	Text     string  `json:"text"`
	Tokens   []int32 `json:"tokens"`
	Relevant []int   `json:"relevant"`
}

func (w *writer) write(ctx context.Context, set *eval.Set) error {
	texts := make([]string, len(set.Defs))
	for i, def := range set.Defs {
		texts[i] = index.Text(index.Document{Def: def})
	}
	vectors, err := w.cache.Embed(ctx, texts, nil)
	if err != nil {
		return err
	}
	var numbers bytes.Buffer
	for _, v := range vectors {
		if err := binary.Write(&numbers, binary.LittleEndian, v); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(w.out, set.Name+".tools"), numbers.Bytes(), 0o644); err != nil {
		return err
	}
	if err := w.writeExamples(set.Name+".queries", queriesOf(set)); err != nil {
		return err
	}
	return w.writeExamples(set.Name+".keywords", keywordQueries(set.Defs, w.seed))
}

// queriesOf are the queries of the set that have a relevant tool in it.
func queriesOf(set *eval.Set) (all []example) {
	set.Resolve()
	at := map[string]int{}
	for i, def := range set.Defs {
		at[def.ID.Server+":"+def.ID.Name] = i
	}
	for _, q := range set.Queries {
		e := example{Text: q.Text}
		for _, label := range q.Relevant {
			if i, ok := at[label]; ok {
				e.Relevant = append(e.Relevant, i)
			}
		}
		if e.Relevant != nil {
			all = append(all, e)
		}
	}
	return all
}

func (w *writer) writeExamples(name string, all []example) (err error) {
	file, err := os.Create(filepath.Join(w.out, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	to := bufio.NewWriter(file)
	lines := json.NewEncoder(to)
	for _, e := range all {
		e.Tokens = w.model.Tokens(e.Text)
		if err := lines.Encode(e); err != nil {
			return err
		}
	}
	return to.Flush()
}
