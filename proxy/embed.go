package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"toolfinch/embed"
	"toolfinch/index"
	"toolfinch/internal/leeway"
	"toolfinch/proxy/web"
	"toolfinch/retrieve"
	"toolfinch/store"
)

const (
	// retryEmbedding is the pause after a failure; each further failure doubles it, up to retryMost.
	retryEmbedding = 10 * time.Second
	retryMost      = 10 * time.Minute

	// reportEmbedding is how often progress is logged.
	reportEmbedding = 10 * time.Second

	// newTexts is how many texts of one server are embedded in addition to hourlyTexts per hour. Without a bound, a
	// server that always changes its texts would occupy the embedder, which may cost money, and fill the store.
	newTexts    = 250_000
	hourlyTexts = 1000
	// heldTexts is how long excess texts wait. Meanwhile they are found by their words.
	heldTexts = 10 * time.Minute
)

// embedder gives tools and queries their vectors. Before the model is open, searches go by words.
type embedder struct {
	settings embed.Settings
	log      *slog.Logger
	catalogs func() []*retrieve.Catalog // the default view's catalog is first: other catalogs add little
	complete func() bool                // reports whether the catalogs have everything in the store
	idle     func()
	queries  retrieve.QueryVectors
	work     chan struct{}            // wakes run
	mine     func(server string) bool // reports whether this replica embeds a server's texts; nil: it embeds all

	mu         sync.Mutex               // guards the next eight fields; held during embed: one runs at a time
	store      *store.Store             // keeps the vectors
	model      embed.Embedder           // nil before the first embed
	cache      *embed.Cache             // of model
	wordsAlone bool                     // no model is configured
	dropped    bool                     // vectors of another dimension were dropped
	paces      map[string]*rate.Limiter // limits new texts, by server
	held       bool                     // texts wait because they are too many
	warned     map[string]bool          // servers whose waiting texts the log has mentioned

	opened    atomic.Pointer[string] // the model's name, once it is open
	failed    atomic.Int64           // failed attempts to embed the tools
	fresh     atomic.Int64           // texts that were embedded, not read from the store
	dimension atomic.Int64           // dimension of the model if the stored vectors have another; else 0
}

// run keeps the vectors of the tools up to date.
func (e *embedder) run(ctx context.Context) {
	rest, had := retryEmbedding, 0
	forgot := false
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.work:
		case <-again:
		}
		again = nil
		began, reported := time.Now(), time.Now()
		before := e.fresh.Load()
		held, err := e.embed(ctx, func(done, total int) {
			if time.Since(reported) >= reportEmbedding {
				reported = time.Now()
				e.log.Info("embedding tools", "done", done, "total", total)
			}
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			e.failed.Add(1)
			pause, level := rest, slog.LevelWarn
			if errors.Is(err, embed.ErrVectors) {
				pause, level = retryEmbedding, store.Level(err) // only the store failed: the pause need not grow
			} else {
				rest = min(2*rest, retryMost)
			}
			e.log.Log(ctx, level, "tools are not embedded, or their vectors not stored", "error", err, "next_try", pause)
			if !leeway.Wait(ctx, pause) {
				return
			}
			wake(e.work)
			continue
		}
		rest = retryEmbedding
		if !forgot && held > 0 && e.complete() { // embed has just read every vector in use
			err := e.store.ForgetVectors(ctx)
			if forgot = err == nil; !forgot {
				e.log.Debug("vectors that nobody uses are kept for now", "error", err)
			}
		}
		if e.holds() {
			again = time.After(heldTexts)
		}
		fresh := int(e.fresh.Load() - before)
		if fresh > 0 {
			e.log.Info("tools embedded", "texts", fresh, "took", time.Since(began).Round(time.Millisecond))
		}
		if max(fresh, held-had) >= manyNew { // vectors read from the store count, too
			e.idle()
		}
		had = held
	}
}

// embed opens the configured model, gives every tool its vector, and makes searches hybrid once queries can be
// embedded. Without a configured model it does nothing. progress, unless nil, is told how many tools have a vector.
// It returns how many vectors the views have together.
func (e *embedder) embed(ctx context.Context, progress func(done, total int)) (held int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.open(ctx); err != nil || e.wordsAlone {
		return 0, err
	}
	cache, before := e.cache, e.cache.Fresh()
	if cache.Dim = int(e.dimension.Load()); cache.Dim != 0 && !e.dropped {
		e.dropped, e.paces = true, nil
		for _, catalog := range e.catalogs() {
			catalog.DropVectors()
		}
	}
	defer func() { e.fresh.Add(int64(cache.Fresh() - before)) }()
	e.held = false
	for _, catalog := range e.catalogs() {
		err = errors.Join(err, catalog.EmbedOf(ctx, cache, budget{e}, progress))
		held += catalog.Embedded()
		progress = nil
	}
	if err == nil {
		err = cache.Store(ctx) // EmbedOf may already have failed to store vectors
	}
	if errors.Is(err, index.ErrDimension) { // stored vectors have several dimensions
		if probe, fails := e.model.Embed(ctx, embed.Query, []string{"tool"}); fails == nil { // a query, because the model may refuse a document
			e.anew(len(probe[0]))
		}
	}
	if err != nil && ctx.Err() == nil && held == 0 && !errors.Is(err, embed.ErrVectors) {
		// The files of the model may have been bad: the next try opens it again.
		e.queries.Use(nil, "the embedder fails to embed the tools")
		err = errors.Join(err, e.model.Close())
		e.model = nil
	}
	return held, err
}

// budget bounds how many new texts of each server are embedded. The lock mu is held.
type budget struct{ *embedder }

func (b budget) pace(server string) *rate.Limiter {
	pace := b.paces[server]
	if pace == nil {
		pace = rate.NewLimiter(rate.Every(time.Hour/hourlyTexts), newTexts)
		if b.paces == nil {
			b.paces = map[string]*rate.Limiter{}
		}
		b.paces[server] = pace
	}
	return pace
}

// Room returns how many of the wanted texts of a server may be embedded now; zero if another replica embeds them.
func (b budget) Room(server string, wanted int) int {
	if b.mine != nil && !b.mine(server) {
		return 0
	}
	room := min(wanted, max(0, int(b.pace(server).Tokens())))
	switch {
	case room == wanted:
		delete(b.warned, server)
		return room
	case !b.warned[server]:
		if b.warned == nil {
			b.warned = map[string]bool{}
		}
		b.warned[server] = true
		b.log.Warn("texts of a server are found by words alone for now: so many of them have changed", "server", server, "embedded_hourly", hourlyTexts)
	}
	b.held = true
	return room
}

// Spent takes embedded texts off the budget of a server.
func (b budget) Spent(server string, texts int) {
	b.pace(server).AllowN(time.Now(), texts)
}

// holds reports whether texts wait because they are too many.
func (e *embedder) holds() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held
}

// open opens the model once. The lock mu is held.
func (e *embedder) open(ctx context.Context) error {
	if e.model != nil || e.wordsAlone {
		return nil
	}
	model, err := embed.Open(ctx, e.settings, e.log)
	switch {
	case errors.Is(err, embed.ErrNoModel): // the reasons are shown to clients, so they contain no path and no address
		e.queries.Use(nil, "the embedding model is missing or damaged; run: toolfinch model pull")
	case err != nil:
		e.queries.Use(nil, "the embedder cannot be opened")
	case model == nil:
		e.wordsAlone = true
	default:
		e.model, e.cache = model, embed.NewCache(model, index.TextVersion, e.store)
		name := e.settings.HFModel
		if kind, _, _ := strings.Cut(model.ID(), ":"); strings.EqualFold(kind, embed.KindOpenAI) {
			name = cmp.Or(e.settings.OpenAI.Model, embed.DefaultOpenAIModel)
		}
		e.opened.Store(&name)
		e.queries.Use(embed.NewRecent(model), "")
	}
	if err != nil {
		return fmt.Errorf("embedder: %w", err)
	}
	return nil
}

// status returns the model and why searches go by words alone; the caller adds the counts.
func (e *embedder) status() (s web.SearchStatus) {
	if name := e.opened.Load(); name != nil {
		s.Model = *name
	}
	s.Reason = e.queries.Why()
	return s
}

// anew embeds all tools again after the dimension of the model changed under the same name. It does so once: if the
// dimension changes again, searches go by words.
func (e *embedder) anew(dim int) {
	if e.dimension.CompareAndSwap(0, int64(dim)) {
		e.log.Warn("the embedder has another dimension than the stored vectors: all tools are embedded again", "dimension", dim)
		wake(e.work)
	}
}

func (e *embedder) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == nil {
		return nil
	}
	e.queries.Use(nil, "")
	err := e.model.Close()
	e.model = nil
	return err
}
