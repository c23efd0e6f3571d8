package proxy

import (
	"context"
	"errors"
	"fmt"
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
		before := p.fresh.Load()
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
		if n := p.fresh.Load() - before; n > 0 {
			p.log.Info("tools embedded", "texts", n, "took", time.Since(began).Round(time.Millisecond))
			p.options.idle()
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
		embedder, err := embed.Open(ctx, p.first.Embed, p.log)
		if err != nil {
			p.vectors.Use(nil, whyNot(err))
			return fmt.Errorf("embedder: %w", err)
		}
		if embedder == nil {
			p.wordsAlone = true
			return nil
		}
		p.embedder = embedder
		p.vectors.Use(embed.NewRecent(embedder), "")
	}
	cache := embed.NewCache(p.embedder, index.TextVersion, p.store)
	if cache.Dim = int(p.dimension.Load()); p.misfits(cache.Dim) {
		for _, v := range p.served.Load().views {
			v.catalog.DropVectors()
		}
	}
	defer func() { p.fresh.Add(int64(cache.Fresh())) }()
	var err error
	for _, v := range p.served.Load().views { // the default view first: the others have little more
		err = errors.Join(err, v.catalog.Embed(ctx, cache, progress))
		progress = nil
	}
	if err != nil && ctx.Err() == nil && p.embedded() == 0 {
		// Perhaps what it was opened from is bad: the next try opens it anew.
		p.vectors.Use(nil, "the embedder fails to embed the tools")
		err = errors.Join(err, p.embedder.Close())
		p.embedder = nil
	}
	return err
}

// embedded is how many tools, prompts and resources of all views have a vector.
func (p *Proxy) embedded() int {
	n := 0
	for _, v := range p.served.Load().views {
		n += v.catalog.Embedded()
	}
	return n
}

// embedAnew embeds all tools again, with a dimension that the embedder did not
// have when they were: its owner changed the model and not its name. Once is
// enough; an embedder that changes again and again is left to words.
func (p *Proxy) embedAnew(dim int) {
	if p.dimension.CompareAndSwap(0, int64(dim)) {
		p.log.Warn("the embedder has another dimension than the stored vectors: all tools are embedded again", "dimension", dim)
		wake(p.unembed)
	}
}

// misfits reports, once, that the vectors in the catalog have another dimension.
func (p *Proxy) misfits(dim int) bool {
	anew := dim != 0 && !p.dropped
	p.dropped = p.dropped || anew
	return anew
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
	p.vectors.Use(nil, "")
	err := p.embedder.Close()
	p.embedder = nil
	return err
}
