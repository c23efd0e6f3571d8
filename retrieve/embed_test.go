package retrieve

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"toolfinch/embed"
	"toolfinch/index"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// fakeEmbedder gives every text a random direction, always the same, and notes
// what it was asked for.
type fakeEmbedder struct {
	id  string
	dim int

	mu    sync.Mutex // guards the rest
	texts []string   // documents embedded so far
	room  int        // how many more may be embedded before it fails; below 0 any number
}

func newFake(id string) *fakeEmbedder { return &fakeEmbedder{id: id, dim: 16, room: -1} }

var errFull = errors.New("no room for more texts")

func (f *fakeEmbedder) ID() string   { return f.id }
func (f *fakeEmbedder) Close() error { return nil }

func (f *fakeEmbedder) Embed(ctx context.Context, role embed.Role, texts []string) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if role == embed.Document {
		if f.room >= 0 && len(texts) > f.room {
			return nil, errFull
		}
		f.room -= len(texts)
		f.texts = append(f.texts, texts...)
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = direction(text, f.dim)
	}
	return out, nil
}

// taken returns the documents embedded since it was last called.
func (f *fakeEmbedder) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts := f.texts
	f.texts = nil
	return texts
}

func direction(text string, dim int) []float32 {
	sum := sha256.Sum256([]byte(text))
	random := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum[:]), 0))
	v := make([]float32, dim)
	var squares float64
	for i := range v {
		v[i] = float32(random.NormFloat64())
		squares += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(squares))
	}
	return v
}

// storeInMemory keeps vectors as the store does.
type storeInMemory struct {
	mu     sync.Mutex // guards spaces
	spaces map[string]map[embed.Key][]float32
}

func (s *storeInMemory) Vectors(_ context.Context, space string, keys []embed.Key) (map[embed.Key][]float32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[embed.Key][]float32{}
	for _, key := range keys {
		if v, ok := s.spaces[space][key]; ok {
			found[key] = slices.Clone(v)
		}
	}
	return found, nil
}

func (s *storeInMemory) PutVectors(_ context.Context, space string, vectors map[embed.Key][]float32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spaces == nil {
		s.spaces = map[string]map[embed.Key][]float32{}
	}
	if s.spaces[space] == nil {
		s.spaces[space] = map[embed.Key][]float32{}
	}
	maps.Copy(s.spaces[space], vectors)
	return nil
}

// manyServers are n tools of four servers; those in changed say something else.
// budgetOf is a budget by server.
type budgetOf struct{ left map[string]int }

func (b *budgetOf) Room(server string, wanted int) int { return min(wanted, b.left[server]) }
func (b *budgetOf) Spent(server string, texts int)     { b.left[server] -= texts }

func manyServers(t testing.TB, n int, changed ...int) []Server {
	t.Helper()
	servers := make([]Server, 4)
	for i := range servers {
		servers[i].Name = fmt.Sprint("server", i)
	}
	for i := range n {
		description := fmt.Sprintf("Does job %d.", i)
		if slices.Contains(changed, i) {
			description = fmt.Sprintf("Does work %d otherwise.", i)
		}
		raw := fmt.Sprintf(`{"name":"tool_%d","description":%q}`, i, description)
		s := &servers[i%len(servers)]
		s.Tools = append(s.Tools, tool.Of([]*tool.Def{def(t, s.Name, raw)}, echo)...)
	}
	return servers
}

func newCatalog(t testing.TB, servers []Server) *Catalog {
	t.Helper()
	return readBy(t, echo, servers)
}

func embedAll(t testing.TB, c *Catalog, e embed.Embedder, store embed.Vectors) {
	t.Helper()
	must.Do(t, c.Embed(t.Context(), embed.NewCache(e, index.TextVersion, store), nil))
	if c.Embedded() != c.Len() {
		t.Fatalf("%d of %d tools have a vector", c.Embedded(), c.Len())
	}
}

func TestNoToolIsEmbeddedTwice(t *testing.T) {
	const n = 600 // more than a step and many batches
	store, fake := &storeInMemory{}, newFake("fake:1")
	catalog := newCatalog(t, manyServers(t, n))
	embedAll(t, catalog, fake, store)
	if got := len(fake.taken()); got != n {
		t.Fatalf("%d texts were embedded for %d tools", got, n)
	}

	t.Run("again", func(t *testing.T) {
		embedAll(t, catalog, fake, store)
		if got := fake.taken(); len(got) != 0 {
			t.Errorf("%d texts were embedded, want none", len(got))
		}
	})
	t.Run("by another process, which reads what this one has stored", func(t *testing.T) {
		other, elsewhere := newCatalog(t, manyServers(t, n)), &storeInMemory{}
		mine := &budgetOf{left: map[string]int{"server0": n}}
		read := func(from *storeInMemory) (embedded, fresh int) {
			must.Do(t, other.EmbedOf(t.Context(), embed.NewCache(fake, index.TextVersion, from), mine, nil))
			return other.Embedded(), len(fake.taken())
		}
		if embedded, fresh := read(elsewhere); embedded == 0 || embedded == n || fresh != embedded {
			t.Errorf("with nothing stored %d have a vector and %d were embedded, want those of one server", embedded, fresh)
		}
		if embedded, fresh := read(store); embedded != n || fresh != 0 {
			t.Errorf("%d have a vector and %d were embedded, want %d and none", embedded, fresh, n)
		}
	})
	t.Run("within a budget, of which refused texts take nothing", func(t *testing.T) {
		budget, cache := &budgetOf{left: map[string]int{"server0": 10, "server1": 0, "server2": 100}}, embed.NewCache(fake, index.TextVersion, &storeInMemory{})
		catalog := newCatalog(t, manyServers(t, 80))
		fake.room = 0
		if err := catalog.EmbedOf(t.Context(), cache, budget, nil); !errors.Is(err, errFull) || budget.left["server0"] != 10 {
			t.Errorf("nothing is embedded: %v, and %v are left", err, budget.left)
		}
		fake.room = -1
		for range 2 {
			if err := catalog.EmbedOf(t.Context(), cache, budget, nil); err != nil || budget.left["server0"] != 0 || budget.left["server2"] != 80 || catalog.Embedded() != 30 {
				t.Errorf("%d are embedded: %v, and %v are left", catalog.Embedded(), err, budget.left)
			}
		}
		fake.taken()
	})
	t.Run("of servers with few first", func(t *testing.T) {
		servers := manyServers(t, 200)
		servers[2].Tools = servers[2].Tools[:3]
		embedAll(t, newCatalog(t, servers), fake, &storeInMemory{})
		for _, text := range fake.taken()[:3] {
			if !slices.ContainsFunc([]string{"job 2.", "job 6.", "job 10."}, func(job string) bool { return strings.Contains(text, job) }) {
				t.Errorf("%q is among the first three", text)
			}
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		embedAll(t, newCatalog(t, manyServers(t, n)), fake, store)
		if got := fake.taken(); len(got) != 0 {
			t.Errorf("%d texts were embedded, want none", len(got))
		}
	})
	t.Run("a changed tool alone", func(t *testing.T) {
		catalog = with(t, catalog, manyServers(t, n, 123))
		if got := catalog.Embedded(); got != n-1 {
			t.Errorf("%d tools have a vector after the change, want all but one of %d", got, n)
		}
		embedAll(t, catalog, fake, store)
		if got := fake.taken(); len(got) != 1 || !strings.Contains(got[0], "work 123") {
			t.Errorf("embedded: %q, want the text of the changed tool", got)
		}
	})
	t.Run("a tool that is changed back", func(t *testing.T) {
		catalog = with(t, catalog, manyServers(t, n))
		embedAll(t, catalog, fake, store)
		if got := fake.taken(); len(got) != 0 {
			t.Errorf("embedded: %q, want nothing", got)
		}
	})
	t.Run("after a restart with many more tools", func(t *testing.T) {
		few := newCatalog(t, manyServers(t, 8))
		embedAll(t, few, fake, store)
		few = with(t, few, manyServers(t, n))
		embedAll(t, few, fake, store)
		if got := fake.taken(); len(got) != 0 {
			t.Errorf("%d texts were embedded, want none", len(got))
		}
	})
}

func TestAnotherEmbedderKeepsBothSets(t *testing.T) {
	const n = 40
	store := &storeInMemory{}
	first, second := newFake("fake:1"), newFake("fake:2")
	second.dim = 24
	for i, test := range []struct {
		embedder *fakeEmbedder
		want     int
	}{{first, n}, {second, n}, {first, 0}, {second, 0}} {
		embedAll(t, newCatalog(t, manyServers(t, n)), test.embedder, store)
		if got := len(test.embedder.taken()); got != test.want {
			t.Errorf("start %d, with %s: %d texts were embedded, want %d", i+1, test.embedder.id, got, test.want)
		}
	}
	if len(store.spaces) != 2 {
		t.Errorf("vectors of %d embedders are stored, want both", len(store.spaces))
	}
}

func TestAnInterruptionKeepsWhatIsDone(t *testing.T) {
	const n = 600
	store, fake := &storeInMemory{}, newFake("fake:1")
	fake.room = 384 // a step and two batches of another
	catalog := newCatalog(t, manyServers(t, n))
	cache := embed.NewCache(fake, index.TextVersion, store)
	if err := catalog.Embed(t.Context(), cache, nil); !errors.Is(err, errFull) {
		t.Fatalf("error %v, want that of the embedder", err)
	}
	done := len(fake.taken())
	if done == 0 || done > 384 {
		t.Fatalf("%d texts were embedded before the interruption", done)
	}
	if got := catalog.Embedded(); got > done {
		t.Errorf("%d tools have a vector, and %d were embedded", got, done)
	}
	fake.room = -1
	var reported []int
	err := catalog.Embed(t.Context(), cache, func(done, total int) {
		if total != n {
			t.Errorf("progress: %d in all, want %d", total, n)
		}
		reported = append(reported, done)
	})
	if err != nil || catalog.Embedded() != n {
		t.Fatalf("%d of %d tools have a vector, error %v", catalog.Embedded(), n, err)
	}
	if got := len(fake.taken()); got != n-done {
		t.Errorf("%d texts were embedded after the interruption, want %d", got, n-done)
	}
	if !slices.IsSorted(reported) || len(reported) == 0 || reported[len(reported)-1] != n {
		t.Errorf("progress %v, want it to rise to %d", reported, n)
	}
}

func TestEmbedEndsWithItsContext(t *testing.T) {
	catalog := newCatalog(t, manyServers(t, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := catalog.Embed(ctx, embed.NewCache(newFake("fake:1"), index.TextVersion, &storeInMemory{}), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if err := NewCatalog(echo).Embed(ctx, nil, nil); err != nil {
		t.Errorf("an empty catalog: %v", err)
	}
}

// fullStore stores nothing.
type fullStore struct{ storeInMemory }

func (*fullStore) PutVectors(context.Context, string, map[embed.Key][]float32) error {
	return errors.New("the disk is full")
}

// Vectors that cannot be stored are used, and made once.
func TestVectorsThatCannotBeStoredAreUsed(t *testing.T) {
	const n = 600 // several chunks
	catalog, fake := newCatalog(t, manyServers(t, n)), newFake("fake:1")
	cache := embed.NewCache(fake, index.TextVersion, &fullStore{})
	if err := catalog.Embed(t.Context(), cache, nil); !errors.Is(err, embed.ErrVectors) || catalog.Embedded() != n {
		t.Errorf("%d of %d have a vector; error %v", catalog.Embedded(), n, err)
	}
	if err := catalog.Embed(t.Context(), cache, nil); err != nil || len(fake.taken()) != n {
		t.Errorf("%d texts were embedded; error %v", len(fake.taken()), err)
	}
}

// swapping changes the catalog while texts are embedded.
type swapping struct {
	*fakeEmbedder
	swap func()
}

func (s *swapping) Embed(ctx context.Context, role embed.Role, texts []string) ([][]float32, error) {
	if s.swap != nil {
		s.swap()
		s.swap = nil
	}
	return s.fakeEmbedder.Embed(ctx, role, texts)
}

func TestToolsThatChangeWhileTheyAreEmbedded(t *testing.T) {
	for _, test := range []struct {
		what        string
		before, now int
		changed     []int
	}{
		{"a change of a few", 40, 40, []int{7, 8}},
		{"fewer", 40, 10, nil},
		{"a few more", 40, 44, nil},
		{"many more, which make a new index", 8, 200, nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			store, fake := &storeInMemory{}, newFake("fake:1")
			catalog := newCatalog(t, manyServers(t, test.before))
			e := &swapping{fake, func() {
				catalog = with(t, catalog, manyServers(t, test.now, test.changed...))
			}}
			if err := catalog.Embed(t.Context(), embed.NewCache(e, index.TextVersion, store), nil); err != nil {
				t.Errorf("while it changed: %v", err)
			}
			embedAll(t, catalog, e, store)
			// Every tool has the vector of its own text.
			for _, tl := range catalog.Tools() {
				text := index.Text(index.Document{Name: tl.Name, Def: tl.Def})
				found, err := catalog.Search(t.Context(), index.Query{Text: "zyx", Limit: 1, Vectors: [][]float32{direction(text, fake.dim)}})
				if err != nil || len(found.Hits) != 1 || found.Hits[0].Name != tl.Name {
					t.Fatalf("the vector of %s finds %v, error %v", tl.Name, found.Hits, err)
				}
			}
		})
	}
}

// queriesFunc answers for the embedder of queries.
type queriesFunc func(ctx context.Context, texts []string) ([][]float32, error)

func (f queriesFunc) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return f(ctx, texts)
}

// script is an embedder of queries that does what each step says, and notes the
// texts it was asked for.
type script struct {
	dim   int
	next  string // "answer", "late" or "fail"
	asked [][]string
}

func (s *script) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	s.asked = append(s.asked, texts)
	switch s.next {
	case "late":
		<-ctx.Done()
		return nil, fmt.Errorf("ask the endpoint: %w", ctx.Err())
	case "fail":
		return nil, errors.New("bad key sk-secret")
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = direction(text, s.dim)
	}
	return out, nil
}

// indexOf asks retrieve_tools and returns the index block of the answer.
func indexOf(t *testing.T, r *Retriever, query string) (block map[string]any, confident bool) {
	t.Helper()
	arguments := must.Get(json.Marshal(map[string]any{"query": query, "detail": "full"}))(t)
	text, isError := ask(t, r.Retrieve, string(arguments))
	var answer struct {
		Tools     []struct{ Name string }
		Confident *bool
		Index     map[string]any
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || isError || answer.Confident == nil {
		t.Fatalf("%s: %v", text, err)
	}
	if len(answer.Tools) == 0 || answer.Tools[0].Name != "github_search_code" {
		t.Errorf("%q finds %v, want github_search_code first, with vectors or without", query, answer.Tools)
	}
	return answer.Index, *answer.Confident
}

// A query is not embedded before there is something to compare it with: an embedder
// that hangs would cost its deadline.
func TestNoQueryWaitsForAnEmbedderWithoutEmbeddedTools(t *testing.T) {
	r, _ := newRetriever(t, Settings{QueryTimeout: time.Hour})
	s := &script{dim: 16, next: "late"}
	r.UseVectors(s, "")
	block, _ := indexOf(t, r, "search_code")
	if len(s.asked) > 0 || block["search"] != "words" || block["reason"] != reasonNone {
		t.Errorf("asked %v, answered %v", s.asked, block)
	}
}

func TestAnswersSayHowTheyWereFound(t *testing.T) {
	newHybrid := func(t *testing.T) (*Retriever, *script) {
		r, catalog := newRetriever(t, Settings{QueryTimeout: time.Millisecond})
		embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
		s := &script{dim: 16}
		r.UseVectors(s, "")
		return r, s
	}
	type step struct {
		next   string // what the embedder does; "rested" lets its rest pass
		search string
		reason string
		asked  bool
	}
	// The deadline is far off where the embedder answers.
	for _, test := range []struct {
		what  string
		steps []step
	}{
		{"it answers", []step{{"answer", "hybrid", "", true}, {"answer", "hybrid", "", true}}},
		{"it is late once", []step{
			{"late", "words", reasonLate, true}, {"answer", "hybrid", "", true},
		}},
		{"failures that are not in a row", []step{
			{"fail", "words", reasonFailed, true}, {"answer", "hybrid", "", true},
			{"late", "words", reasonLate, true}, {"answer", "hybrid", "", true}, {"answer", "hybrid", "", true},
		}},
		{"two failures in a row, and a rest", []step{
			{"fail", "words", reasonFailed, true}, {"late", "words", reasonLate, true},
			{"answer", "words", reasonFailed, false}, {"answer", "words", reasonFailed, false},
			{"rested", "hybrid", "", true}, {"answer", "hybrid", "", true},
		}},
		{"it fails after the rest too", []step{
			{"fail", "words", reasonFailed, true}, {"fail", "words", reasonFailed, true},
			{"rested, fail", "words", reasonFailed, true}, {"answer", "words", reasonFailed, false},
			{"rested", "hybrid", "", true},
			{"fail", "words", reasonFailed, true}, {"answer", "hybrid", "", true},
		}},
	} {
		t.Run(test.what, func(t *testing.T) {
			r, s := newHybrid(t)
			for i, step := range test.steps {
				rest, fail := strings.Contains(step.next, "rested"), strings.Contains(step.next, "fail")
				s.next = step.next
				if rest {
					r.settings.Vectors.mu.Lock()
					r.settings.Vectors.rest = time.Now()
					r.settings.Vectors.mu.Unlock()
					s.next = map[bool]string{true: "fail", false: "answer"}[fail]
				}
				r.settings.QueryTimeout = time.Hour
				if s.next == "late" {
					r.settings.QueryTimeout = time.Millisecond
				}
				before := len(s.asked)
				block, _ := indexOf(t, r, "search_code")
				reason, _ := block["reason"].(string)
				if block["search"] != step.search || reason != step.reason {
					t.Errorf("step %d (%s): search %v with reason %q, want %s with %q", i+1, step.next, block["search"], reason, step.search, step.reason)
				}
				if asked := len(s.asked) > before; asked != step.asked {
					t.Errorf("step %d (%s): the embedder was asked: %v, want %v", i+1, step.next, asked, step.asked)
				}
				if _, partly := block["embedded"]; partly {
					t.Errorf("step %d: embedded is %v though all tools are", i+1, block["embedded"])
				}
			}
		})
	}
}

func TestUseVectorsBeginsAnew(t *testing.T) {
	r, catalog := newRetriever(t, Settings{QueryTimeout: time.Hour})
	embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
	expect := func(search, reason string) {
		t.Helper()
		block, _ := indexOf(t, r, "search_code")
		if got, _ := block["reason"].(string); block["search"] != search || got != reason {
			t.Errorf("search %v with reason %q, want %s with %q", block["search"], got, search, reason)
		}
	}
	expect("words", "")
	r.UseVectors(nil, "the model is damaged")
	expect("words", "the model is damaged")
	broken := &script{dim: 16, next: "fail"}
	r.UseVectors(broken, "")
	expect("words", reasonFailed)
	expect("words", reasonFailed)
	expect("words", reasonFailed)
	if len(broken.asked) != failuresInARow {
		t.Errorf("it was asked %d times, want %d", len(broken.asked), failuresInARow)
	}
	r.UseVectors(&script{dim: 16}, "")
	expect("hybrid", "")
	r.UseVectors(&script{dim: 15}, "")
	expect("words", reasonMisfits)
	r.UseVectors(nil, "")
	expect("words", "")
}

func TestToolsFollowTheDimensionOfQueries(t *testing.T) {
	var heard []int
	r, catalog := newRetriever(t, Settings{QueryTimeout: time.Hour, Misfit: func(dim int) { heard = append(heard, dim) }})
	catalog.DropVectors() // of none
	embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
	r.UseVectors(&script{dim: 24}, "")
	if block, _ := indexOf(t, r, "search_code"); block["search"] != "words" || block["reason"] != reasonMisfits || !slices.Equal(heard, []int{24}) {
		t.Errorf("vectors that do not fit: %v, heard %v", block, heard)
	}
	catalog.DropVectors()
	if n := catalog.Embedded(); n != 0 {
		t.Errorf("%d tools have a vector still", n)
	}
	if block, _ := indexOf(t, r, "search_code"); block["search"] != "words" {
		t.Errorf("without vectors: %v", block)
	}
	wider := newFake("fake:2")
	wider.dim = 24
	embedAll(t, catalog, wider, &storeInMemory{})
	if block, _ := indexOf(t, r, "search_code"); block["search"] != "hybrid" || len(heard) != 1 {
		t.Errorf("with vectors that fit: %v, heard %v", block, heard)
	}
}

func TestEachClauseOfAQueryIsEmbedded(t *testing.T) {
	r, catalog := newRetriever(t, Settings{QueryTimeout: time.Hour})
	embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
	s := &script{dim: 16}
	r.UseVectors(s, "")
	const text = "search the code of a repository, then add an event to the calendar"
	must.Get(r.Search(t.Context(), Query{Text: text, Limit: 5}))(t)
	if want := index.QueryTexts(text); len(want) != 3 || len(s.asked) != 1 || !slices.Equal(s.asked[0], want) {
		t.Errorf("asked for %q, want once for %q", s.asked, want)
	}
}

func TestNobodyWaitsForTheVectorsOfACancelledSearch(t *testing.T) {
	r, catalog := newRetriever(t, Settings{QueryTimeout: time.Hour})
	embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
	ctx, cancel := context.WithCancel(t.Context())
	r.UseVectors(queriesFunc(func(timed context.Context, texts []string) ([][]float32, error) {
		if cancel(); timed.Err() == nil { // the next search, of somebody else
			return (&script{dim: 16}).Embed(timed, texts)
		}
		return nil, timed.Err()
	}), "")
	for range 2 * failuresInARow {
		if _, err := r.Search(ctx, Query{Text: "search code", Limit: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
	}
	// They are no failures of the embedder.
	if block, _ := indexOf(t, r, "search_code"); block["search"] != "hybrid" {
		t.Errorf("afterwards %v", block)
	}
}

// What one client makes late by long queries turns the embedder off for nobody.
func TestLongQueriesThatAreLateAreNoFailures(t *testing.T) {
	var v QueryVectors
	v.Use(queriesFunc(func(timed context.Context, _ []string) ([][]float32, error) {
		<-timed.Done()
		return nil, timed.Err()
	}), "")
	ask := func(text string) string {
		_, why := v.of(t.Context(), text, time.Millisecond, true)
		return why
	}
	long := strings.Repeat("a long query, ", 100)
	for range 2 * failuresInARow {
		if why := ask(long); why != reasonLate {
			t.Errorf("a long query: %s", why)
		}
	}
	for range failuresInARow {
		if why := ask("a plain one"); why != reasonLate {
			t.Errorf("a plain query: %s", why)
		}
	}
	if why := ask("a plain one"); why != reasonFailed {
		t.Errorf("after %d plain queries: %s", failuresInARow, why)
	}
}

func TestAnswersSayHowManyToolsAreEmbedded(t *testing.T) {
	r, catalog := newRetriever(t, Settings{QueryTimeout: time.Hour})
	r.UseVectors(&script{dim: 16}, "")
	if block, _ := indexOf(t, r, "search_code"); block["search"] != "words" || block["embedded"] != nil {
		t.Errorf("before any is embedded: %v", block)
	}
	embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
	servers := slices.Clone(catalog.Servers())
	servers = append(servers, Server{Name: "zoo", Tools: tool.Of([]*tool.Def{def(t, "zoo", `{"name":"feed"}`), def(t, "zoo", `{"name":"clean"}`)}, echo)})
	catalog = with(t, catalog, servers)
	r = New(catalog, r.settings)
	if block, _ := indexOf(t, r, "search_code"); block["search"] != "hybrid" || block["embedded"] != 5. || block["tools"] != 7. {
		t.Errorf("five of seven are embedded: %v", block)
	}
	embedAll(t, catalog, newFake("fake:1"), &storeInMemory{})
	if block, _ := indexOf(t, r, "search_code"); block["search"] != "hybrid" || block["embedded"] != nil {
		t.Errorf("all are embedded: %v", block)
	}
}

func TestDoubtedAnswersAreShorter(t *testing.T) {
	for _, test := range []struct {
		n          int
		confidence float64
		want       int
	}{
		{0, 0, 0}, {0, 1, 0}, {1, 0, 1}, {1, 1, 1},
		{5, 1, 5}, {5, Confident, 5}, {5, Confident / 2, 5}, {5, hopeless / 2, 3}, {5, 0, 2},
		{10, .9, 10}, {10, hopeless * .75, 8}, {10, 0, 4}, {50, 0, 20}, {50, Confident, 50},
	} {
		if got := doubted(test.n, test.confidence); got != test.want {
			t.Errorf("of %d hits at confidence %.3f %d stay, want %d", test.n, test.confidence, got, test.want)
		}
	}
	last := 0
	for c := 0.0; c <= 1; c += .001 {
		n := doubted(10, c)
		if n < last {
			t.Fatalf("%d hits at confidence %v and %d at less", n, c, last)
		}
		last = n
	}
}

func TestConfidentIsSaidInTheAnswer(t *testing.T) {
	r := New(newCatalog(t, manyServers(t, 60)), Settings{})
	const limit = 10 // and all tools have a word of each query
	for query, want := range map[string]bool{
		"tool_7":         true,
		"server3.tool_7": true,
		"please do something about the holidays of my aunt in the mountains and her job": false,
	} {
		arguments := must.Get(json.Marshal(map[string]any{"query": query, "detail": "full", "limit": limit}))(t)
		text, _ := ask(t, r.Retrieve, string(arguments))
		var answer struct {
			Tools     []any
			Confident bool
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Confident != want || (len(answer.Tools) == limit) != want || len(answer.Tools) < int(leastDoubted*limit) {
			t.Errorf("%q: confident %v with %d of %d tools, error %v; want %v, and all of them only then", query, answer.Confident, len(answer.Tools), limit, err, want)
		}
	}
}

// realTools is where definitions of real servers are, beside the repository.
const realTools = "../../shared/realtools"

func realServers(t testing.TB) []Server {
	t.Helper()
	files, err := os.ReadDir(realTools)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the definitions of real servers are not beside the repository (shared/realtools)")
	} else if err != nil {
		t.Fatal(err)
	}
	var servers []Server
	for _, file := range files {
		name, isServer := strings.CutSuffix(file.Name(), ".json")
		if !isServer {
			continue
		}
		text := must.Get(os.ReadFile(filepath.Join(realTools, file.Name())))(t)
		var content struct {
			ServerInfo struct{ Description string }
			Tools      []json.RawMessage
		}
		if err := json.Unmarshal(text, &content); err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
		s := Server{Name: name, Description: content.ServerInfo.Description}
		for _, raw := range content.Tools {
			s.Tools = append(s.Tools, tool.Of([]*tool.Def{def(t, name, string(raw))}, echo)...)
		}
		servers = append(servers, s)
	}
	return servers
}

// spellings are the ways to write the words of a name.
func spellings(name string) []string {
	words := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	var camel strings.Builder
	for i, word := range words {
		if i > 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		camel.WriteString(word)
	}
	return []string{strings.Join(words, " "), camel.String(), strings.ToUpper(strings.Join(words, "-"))}
}

// Every real tool is the first that its name finds, in words and beside vectors
// that mean nothing, the worst a model can do. Of tools with one bare name any
// may be first; an exposed name and "server.name" belong to one tool alone.
func TestQualityOfExactNames(t *testing.T) {
	catalog := newCatalog(t, realServers(t))
	fake := newFake("fake:1")
	fake.dim = 8 // random vectors are less alike the more numbers they have
	embedAll(t, catalog, fake, &storeInMemory{})
	plain := func(name string) string {
		return strings.ToLower(strings.Join(strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), ""))
	}
	for _, mode := range []string{"words", "hybrid"} {
		t.Run(mode, func(t *testing.T) {
			r := New(catalog, Settings{QueryTimeout: time.Hour})
			if mode == "hybrid" {
				r.UseVectors(queriesFunc(func(ctx context.Context, texts []string) ([][]float32, error) {
					return fake.Embed(ctx, embed.Query, texts)
				}), "")
			}
			queries, wrong := 0, 0
			check := func(query string, right func(hit *tool.Tool) bool) {
				queries++
				found, err := r.Search(t.Context(), Query{Text: query, Limit: 2})
				if err != nil || found.Hybrid != (mode == "hybrid") {
					t.Fatalf("%q: hybrid %v, error %v", query, found.Hybrid, err)
				}
				if len(found.Hits) > 0 && right(found.Hits[0].Tool) && found.Confidence == 1 {
					return
				}
				if wrong++; wrong <= 10 {
					t.Errorf("%q finds %v at confidence %v", query, hitNames(found.Hits), found.Confidence)
				}
			}
			for _, tl := range catalog.Tools() {
				this := func(hit *tool.Tool) bool { return hit == tl }
				check(tl.Name, this)
				check(tl.Def.ID.String(), this)
				check(tl.Def.ID.Name, func(hit *tool.Tool) bool { return hit.Def.ID.Name == tl.Def.ID.Name })
				for _, spelling := range spellings(tl.Def.ID.Name) {
					if strings.Contains(tl.Def.Title, "(Deprecated)") && strings.Contains(spelling, " ") {
						continue // "read file" may mean the tool that replaces read_file
					}
					check(spelling, func(hit *tool.Tool) bool { return plain(hit.Def.ID.Name) == plain(tl.Def.ID.Name) })
				}
			}
			t.Logf("%d queries over %d tools, %d wrong", queries, catalog.Len(), wrong)
			if wrong > 0 || catalog.Len() < 1000 {
				t.Errorf("%d of %d queries are wrong, over %d tools", wrong, queries, catalog.Len())
			}
		})
	}
}

func hitNames(hits []Hit) []string {
	var out []string
	for _, hit := range hits {
		out = append(out, hit.Name)
	}
	return out
}
