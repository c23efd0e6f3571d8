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
	"toolfinch/proxy/web"
	"toolfinch/retrieve"
	"toolfinch/store"
)

const (
	// retryEmbedding is how long the embedder rests after a failure, twice as
	// long after each further one, up to retryMost.
	retryEmbedding = 10 * time.Second
	retryMost      = 10 * time.Minute

	// reportEmbedding is how often progress is logged.
	reportEmbedding = 10 * time.Second

	// newTexts is how many texts of one server are embedded beside hourlyTexts an hour: those of one that
	// changes them all the time would take the embedder, which may cost money, and fill the store.
	newTexts    = 250_000
	hourlyTexts = 1000
	// heldTexts is how long those that are too many wait. They are found by their words meanwhile.
	heldTexts = 10 * time.Minute
)

// embedder gives tools and queries their vectors. Searches are answered by words
// until it has begun.
type embedder struct {
	settings embed.Settings
	log      *slog.Logger
	catalogs func() []*retrieve.Catalog // the default view's first: the others have little more
	complete func() bool                // all that the store knows is in the catalogs
	idle     func()
	queries  retrieve.QueryVectors
	work     chan struct{}            // wakes run
	mine     func(server string) bool // texts of other servers are embedded by other replicas; nil: all are

	mu         sync.Mutex               // one embed at a time; guards the next eight
	store      *store.Store             // keeps the vectors
	model      embed.Embedder           // nil before the first embed
	cache      *embed.Cache             // of model
	wordsAlone bool                     // there is to be none
	dropped    bool                     // vectors of another dimension were dropped
	paces      map[string]*rate.Limiter // of new texts, by server
	held       bool                     // texts wait
	warned     map[string]bool          // of servers of which texts wait

	opened    atomic.Pointer[string] // the model's name, once it is open
	failed    atomic.Int64           // tries to embed the tools
	fresh     atomic.Int64           // texts that were embedded, not read from the store
	dimension atomic.Int64           // the model's, once the tools turned out to have another
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
				pause, level = retryEmbedding, store.Level(err) // the store comes back some time, and the model is well
			} else {
				rest = min(2*rest, retryMost)
			}
			e.log.Log(ctx, level, "tools are not embedded, or their vectors not stored", "error", err, "next_try", pause)
			if !waited(ctx, pause) {
				return
			}
			wake(e.work)
			continue
		}
		rest = retryEmbedding
		if !forgot && held > 0 && e.complete() { // all that is used was asked for just now
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
		if max(fresh, held-had) >= manyNew { // the others were read from the store
			e.idle()
		}
		had = held
	}
}

// embed opens the model that is configured, gives every tool its vector and makes
// searches hybrid as soon as it can answer queries. With words alone it does
// nothing. progress, if not nil, hears how many tools have a vector. It returns how many vectors
// the views have together.
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
		err = cache.Store(ctx) // else it was tried just now
	}
	if errors.Is(err, index.ErrDimension) { // what is stored is of two
		if probe, fails := e.model.Embed(ctx, embed.Query, []string{"tool"}); fails == nil { // a document may be refused
			e.anew(len(probe[0]))
		}
	}
	if err != nil && ctx.Err() == nil && held == 0 && !errors.Is(err, embed.ErrVectors) {
		// Perhaps what it was opened from is bad: the next try opens it anew.
		e.queries.Use(nil, "the embedder fails to embed the tools")
		err = errors.Join(err, e.model.Close())
		e.model = nil
	}
	return held, err
}

// budget is how many new texts of servers are embedded. The lock mu is held.
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

// Room is none for servers whose texts other replicas embed.
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

// Spent takes no more than there is.
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
	case errors.Is(err, embed.ErrNoModel): // clients are told no paths, no addresses
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

// status says how tools are found, without counts.
func (e *embedder) status() (s web.SearchStatus) {
	if name := e.opened.Load(); name != nil {
		s.Model = *name
	}
	s.Reason = e.queries.Why()
	return s
}

// anew embeds all tools again, with a dimension that the model did not have when
// they were: its owner changed the model and not its name. Once is enough; a model
// that changes again and again is left to words.
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
