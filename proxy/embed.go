package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"toolfinch/embed"
	"toolfinch/index"
)

const (
	// retryEmbedding is how long the embedder rests after a failure, twice as
	// long after each further one, up to retryMost.
	retryEmbedding = 10 * time.Second
	retryMost      = 10 * time.Minute

	// reportEmbedding is how often progress is logged.
	reportEmbedding = 10 * time.Second
)

// embedTools keeps the vectors of the tools up to date. Searches are answered
// by words until it has begun.
func (p *Proxy) embedTools(ctx context.Context) {
	rest := retryEmbedding
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.unembed:
		}
		began, reported := time.Now(), time.Now()
		before := p.catalog.Embedded()
		err := p.Embed(ctx, func(done, total int) {
			if time.Since(reported) >= reportEmbedding {
				reported = time.Now()
				p.log.Info("embedding tools", "done", done, "total", total)
			}
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.log.Warn("tools are not embedded", "error", err, "next_try", rest)
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
				rest = min(2*rest, retryMost)
				wake(p.unembed)
			}
			continue
		}
		rest = retryEmbedding
		if n := p.catalog.Embedded(); n != before {
			p.log.Info("tools embedded", "tools", n, "took", time.Since(began).Round(time.Millisecond))
			debug.FreeOSMemory()
		}
	}
}

// Embed opens the embedder that is configured, gives every tool its vector and
// makes searches hybrid as soon as it can answer queries. With words alone it
// does nothing. progress, if not nil, hears how many tools have a vector.
func (p *Proxy) Embed(ctx context.Context, progress func(done, total int)) error {
	p.embedding.Lock()
	defer p.embedding.Unlock()
	if p.embedder == nil {
		if p.wordsAlone {
			return nil
		}
		embedder, err := embed.Open(ctx, p.config.Embed, p.log)
		if err != nil {
			p.retriever.UseVectors(nil, whyNot(err))
			return fmt.Errorf("embedder: %w", err)
		}
		if embedder == nil {
			p.wordsAlone = true
			return nil
		}
		p.embedder = embedder
		p.retriever.UseVectors(embed.NewRecent(embedder), "")
	}
	return p.catalog.Embed(ctx, embed.NewCache(p.embedder, index.TextVersion, p.store), progress)
}

// whyNot is what clients are told of an embedder that cannot be opened: no
// paths, no addresses.
func whyNot(err error) string {
	if errors.Is(err, embed.ErrNoModel) {
		return "the embedding model is missing or damaged; run: toolfinch model pull"
	}
	return "the embedder cannot be opened"
}

func (p *Proxy) closeEmbedder() error {
	p.embedding.Lock()
	defer p.embedding.Unlock()
	if p.embedder == nil {
		return nil
	}
	p.retriever.UseVectors(nil, "")
	err := p.embedder.Close()
	p.embedder = nil
	return err
}
