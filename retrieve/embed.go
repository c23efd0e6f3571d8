package retrieve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"toolfinch/embed"
	"toolfinch/index"
	"toolfinch/tool"
)

// embedChunk is how many tools get their vectors in one step.
const embedChunk = 256

// Embed gives a vector to every tool, prompt and resource that has none, first from the
// cache. Searches go on meanwhile, with the vectors that exist. progress, if not nil,
// is told how many have one. Tools that change meanwhile wait for the next call, which
// follows each With.
func (k *kept) Embed(ctx context.Context, cache *embed.Cache, progress func(done, total int)) error {
	return k.EmbedOf(ctx, cache, nil, progress)
}

// Budget says how many new texts of servers are embedded.
type Budget interface {
	// Room is how many of so many more texts of a server may be embedded.
	Room(server string, wanted int) int
	// Spent says that so many were.
	Spent(server string, texts int)
}

// EmbedOf is Embed within a budget, nil for none: what is beyond that gets the vectors that are stored.
// Texts of servers with few come first.
func (k *kept) EmbedOf(ctx context.Context, cache *embed.Cache, budget Budget, progress func(done, total int)) error {
	err := k.put(ctx, k.index.Missing(), func(ctx context.Context, texts []string, _ func(done, total int)) ([][]float32, error) {
		return cache.Stored(ctx, texts)
	}, nil)
	if err != nil {
		return err
	}
	of := map[string][]index.Document{} // servers
	for _, d := range k.index.Missing() {
		of[d.Def.ID.Server] = append(of[d.Def.ID.Server], d)
	}
	servers := slices.Sorted(maps.Keys(of))
	if budget != nil {
		for _, server := range servers {
			of[server] = of[server][:budget.Room(server, len(of[server]))]
		}
	}
	slices.SortStableFunc(servers, func(a, b string) int { return cmp.Compare(len(of[a]), len(of[b])) })
	var missing []index.Document
	for _, server := range servers {
		missing = append(missing, of[server]...)
	}
	err = k.put(ctx, missing, cache.Embed, progress)
	if budget == nil {
		return err
	}
	still := map[*tool.Def]bool{} // what changed meanwhile is another one, and was embedded
	for _, d := range k.index.Missing() {
		still[d.Def] = true
	}
	for server, docs := range of {
		texts := 0
		for _, d := range docs {
			if !still[d.Def] {
				texts++
			}
		}
		budget.Spent(server, texts)
	}
	return err
}

// put gives documents the vectors that get returns of their texts, as embed.Cache.Embed does.
func (k *kept) put(ctx context.Context, docs []index.Document, get func(context.Context, []string, func(done, total int)) ([][]float32, error), progress func(done, total int)) error {
	total := k.index.Len()
	done := total - len(docs)
	var mu sync.Mutex // guards done and unstored; held while progress is told, so that it never falls
	var unstored error
	tell := func(more int) {
		if progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		done += more
		progress(done, total)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(2) // one chunk is read or embedded while another is put in
	for docs := range slices.Chunk(docs, embedChunk) {
		work.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			texts := make([]string, len(docs))
			for i, d := range docs {
				texts[i] = index.Text(d)
			}
			told := 0 // of this chunk; equal texts count once until it is done
			vectors, err := get(ctx, texts, func(n, _ int) { tell(n - told); told = n })
			if vectors == nil {
				return err
			}
			if err != nil {
				mu.Lock()
				unstored = err
				mu.Unlock()
			}
			if err := k.index.PutVectors(docs, vectors); err != nil {
				return err
			}
			tell(len(docs) - told)
			return nil
		})
	}
	err := work.Wait()
	if errors.Is(err, index.ErrClosed) { // all of it changed meanwhile
		return nil
	}
	if err = cmp.Or(err, unstored); err == nil {
		return nil
	}
	return fmt.Errorf("catalog: embed: %w", err)
}

// DropVectors forgets all vectors; Embed makes them again.
func (k *kept) DropVectors() { k.index.DropVectors() }

// Embedded returns how many tools, prompts and resources have a vector.
func (k *kept) Embedded() int { return k.index.Vectors() }

// Indexed returns how many tools, prompts and resources can be found.
func (k *kept) Indexed() int { return k.index.Len() }
