package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

func doc(t testing.TB, server, name, description string) Document {
	t.Helper()
	raw := must.Get(json.Marshal(map[string]string{"name": name, "description": description}))(t)
	return docOf(t, server, string(raw), "")
}

func docOf(t testing.TB, server, raw, about string) Document {
	t.Helper()
	def := must.Get(tool.ParseDef(server, json.RawMessage(raw)))(t)
	return Document{Name: server + "_" + def.ID.Name, Def: def, ServerDescription: about}
}

func build(t testing.TB, docs ...Document) *Index {
	t.Helper()
	x := must.Get(Build(t.Context(), docs))(t)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func search(t testing.TB, x *Index, q Query) []Hit {
	t.Helper()
	found := must.Get(x.Search(t.Context(), q))(t)
	return found.Hits
}

func names(hits []Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = h.Name
	}
	return out
}

// small is a catalogue in which every query below has one answer.
func small(t testing.TB) []Document {
	return []Document{
		doc(t, "github", "create_issue", "Open a new issue in a repository."),
		doc(t, "github", "search_code", "Find code across repositories."),
		doc(t, "github", "search", "Look through everything on the site."),
		doc(t, "files", "readTextFile", "Return what a file on disk contains. Never search code with it."),
		doc(t, "files", "base64_decode", "Turn encoded data back into bytes."),
		doc(t, "aws", "list-s3-buckets", "Show the storage of an account."),
		doc(t, "web", "getURLs", "Collect the links of a page."),
		doc(t, "café", "order", "Ordering for the counter: drinks, cakes."),
		doc(t, "bing", "bing_search", "使用必应搜索指定的关键词"),
		docOf(t, "mail", `{"name":"send","title":"Postman","inputSchema":{"properties":{"recipient":{"description":"who receives the letter"}}}}`, "Correspondence of the office"),
	}
}

func TestSearchFinds(t *testing.T) {
	x := build(t, small(t)...)
	for _, test := range []struct{ what, query, want string }{
		{"stems", "creating issues", "github_create_issue"},
		{"camel case", "read text", "files_readTextFile"},
		{"a joined identifier", "readtextfile", "files_readTextFile"},
		{"an acronym's plural", "url", "web_getURLs"},
		{"digits, whole", "base64", "files_base64_decode"},
		{"digits, apart", "base 64", "files_base64_decode"},
		{"a short name with a digit", "S3", "aws_list-s3-buckets"},
		{"folded accents", "cafe", "café_order"},
		{"accents in the query", "Ordèr drìnks", "café_order"},
		{"a script without spaces", "必应", "bing_bing_search"},
		{"a title", "postman", "mail_send"},
		{"a parameter", "recipient", "mail_send"},
		{"a parameter's description", "receiving a letter", "mail_send"},
		{"the server's description", "correspondence", "mail_send"},
		{"query syntax is text", `+name:"links" -page^5 (page~ OR *`, "web_getURLs"},
		{"a word half typed", "buck", "aws_list-s3-buckets"},
		{"nothing but request words", "get", "web_getURLs"},
	} {
		t.Run(test.what, func(t *testing.T) {
			hits := search(t, x, Query{Text: test.query, Limit: 3})
			if len(hits) == 0 || hits[0].Name != test.want {
				t.Errorf("%q finds %v, want %s first", test.query, hits, test.want)
			}
		})
	}
}

func TestExactNameComesFirst(t *testing.T) {
	docs := small(t)
	// Each says the words of the exact names more often than their owners do.
	for i := range 20 {
		docs = append(docs, doc(t, fmt.Sprintf("noise%02d", i), "search_code_search_code",
			strings.Repeat("github search code order send. ", 3)))
	}
	x := build(t, docs...)
	for _, test := range []struct{ query, want string }{
		{"search_code", "github_search_code"},
		{"search code", "github_search_code"},
		{"Search-Code", "github_search_code"},
		{"searchCode", "github_search_code"},
		{"github_search_code", "github_search_code"},
		{"github.search_code", "github_search_code"},
		{"GITHUB search_CODE", "github_search_code"},
		{"search", "github_search"},
		{" send ", "mail_send"},
		{"cafe.order", "café_order"},
	} {
		hits := search(t, x, Query{Text: test.query, Limit: 2})
		if len(hits) != 2 || hits[0].Name != test.want {
			t.Errorf("%q finds %v, want %s first", test.query, names(hits), test.want)
		} else if hits[0].Score <= hits[1].Score {
			t.Errorf("%q: scores %v do not fall", test.query, hits)
		}
	}
}

func TestNameOutweighsServerOutweighsDescriptionOutweighsParameters(t *testing.T) {
	x := build(t,
		docOf(t, "d", `{"name":"fourth","description":"alpha beta gamma delta","inputSchema":{"properties":{"weather":{}}}}`, ""),
		docOf(t, "c", `{"name":"third","description":"weather beta gamma delta"}`, ""),
		docOf(t, "weather", `{"name":"second","description":"alpha beta gamma delta"}`, ""),
		docOf(t, "a", `{"name":"weather_report","description":"alpha beta gamma delta"}`, ""),
	)
	want := []string{"a_weather_report", "weather_second", "c_third", "d_fourth"}
	if got := names(search(t, x, Query{Text: "the weather", Limit: 9})); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestServerIsFilteredBeforeTheCut(t *testing.T) {
	var docs []Document
	for i := range 60 {
		docs = append(docs, doc(t, "loud", fmt.Sprintf("search_%02d", i), "search search"))
	}
	docs = append(docs, doc(t, "quiet", "other", "Mentions a search among many other words of no interest here."))
	x := build(t, docs...)
	got := names(search(t, x, Query{Text: "search", Server: "quiet", Limit: 1}))
	if want := []string{"quiet_other"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if hits := search(t, x, Query{Text: "search", Server: "QUIET", Limit: 5}); len(hits) != 0 {
		t.Errorf("a server that is not there: %v", hits)
	}
	if hits := search(t, x, Query{Text: "loud_search_07", Server: "quiet", Limit: 5}); slices.Contains(names(hits), "loud_search_07") {
		t.Errorf("an exact name passes the filter: %v", hits)
	}
}

func TestEqualScoresAreOrderedAndCutByName(t *testing.T) {
	var docs []Document
	for i := range 40 {
		docs = append(docs, doc(t, fmt.Sprintf("s%02d", i), "fetch", "Fetch a page."))
	}
	for range 3 {
		rand.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
		x := build(t, docs...)
		got := names(search(t, x, Query{Text: "page", Limit: 3}))
		if want := []string{"s00_fetch", "s01_fetch", "s02_fetch"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestHostileQueriesAreAnswered(t *testing.T) {
	x := build(t, small(t)...)
	for name, text := range map[string]string{
		"empty":        "",
		"blank":        " \t\n",
		"stop words":   "to be or not to be",
		"a stop word":  "to",
		"punctuation":  "!?.,;:-_/\\'\"()[]{}*+~^",
		"apostrophes":  "''' ’s 's s",
		"control":      "\x00\x01\x1b[31m\x7f",
		"no UTF-8":     "\xff\xfe\xc3",
		"emoji":        "🦜🦜🦜 👩‍👩‍👧",
		"one mark":     "\u0301",
		"a word of 1M": strings.Repeat("a", 1<<20),
		"han of 1M":    strings.Repeat("漢字", 1<<18),
		"camel of 1M":  strings.Repeat("aB", 1<<19),
		"10 kB":        strings.Repeat("please create issue number 7, then ", 300),
		"many words":   strings.Join(numbers(5000), " "),
	} {
		t.Run(name, func(t *testing.T) {
			for _, server := range []string{"", "github", "\x00"} {
				if hits := search(t, x, Query{Text: text, Server: server, Limit: 5}); len(hits) > 5 {
					t.Errorf("%d hits", len(hits))
				}
			}
		})
	}
	for _, limit := range []int{0, -1} {
		if hits := search(t, x, Query{Text: "issue", Limit: limit}); len(hits) != 0 {
			t.Errorf("limit %d: %v", limit, hits)
		}
	}
	for _, text := range []string{"to be or not to be", "...", "🦜"} {
		if hits := search(t, x, Query{Text: text, Limit: 5}); len(hits) != 0 {
			t.Errorf("%q finds %v", text, hits)
		}
	}
}

func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("word%d", i)
	}
	return out
}

func TestHostileDocumentsAreIndexed(t *testing.T) {
	x := build(t,
		docOf(t, "\x00", `{"name":"\u0000","description":"`+strings.Repeat("blob", 1<<18)+`"}`, ""),
		docOf(t, "s", `{"name":"🦜","inputSchema":{"properties":[1,2]}}`, ""),
		docOf(t, "s", `{"name":"ok","description":"still found","inputSchema":7}`, ""),
	)
	if got := names(search(t, x, Query{Text: "still found", Limit: 5})); !slices.Equal(got, []string{"s_ok"}) {
		t.Errorf("%v", got)
	}
	if x.Len() != 3 {
		t.Errorf("%d documents", x.Len())
	}
}

func TestApply(t *testing.T) {
	x := build(t, small(t)...)
	all := x.Len()
	apply := func(changed []Document, removed ...string) {
		t.Helper()
		must.Do(t, x.Apply(t.Context(), changed, removed))
	}
	expect := func(query string, want ...string) {
		t.Helper()
		if got := names(search(t, x, Query{Text: query, Limit: 5})); !slices.Equal(got, want) {
			t.Errorf("%q finds %v, want %v", query, got, want)
		}
	}
	apply([]Document{doc(t, "zoo", "feed", "Feed the pelicans.")})
	expect("pelican", "zoo_feed")
	apply([]Document{doc(t, "zoo", "feed", "Feed the ostriches.")})
	expect("pelican")
	expect("ostrich", "zoo_feed")
	apply([]Document{doc(t, "zoo", "feed", "Feed the penguins.")}, "zoo_feed")
	expect("penguin", "zoo_feed")
	if x.Len() != all+1 {
		t.Errorf("%d documents, want %d", x.Len(), all+1)
	}
	apply(nil, "zoo_feed", "never_there")
	expect("penguin")
	expect("zoo_feed")
	apply(nil)
	if x.Len() != all {
		t.Errorf("%d documents, want %d", x.Len(), all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Apply(ctx, []Document{doc(t, "zoo", "feed", "")}, []string{"github_search"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	expect("zoo_feed")
	if x.Len() != all {
		t.Errorf("%d documents after an error, want %d", x.Len(), all)
	}
}

func TestBuildKeepsTheLaterOfTwo(t *testing.T) {
	x := build(t, doc(t, "zoo", "feed", "Feed the pelicans."), doc(t, "zoo", "feed", "Feed the ostriches."))
	if x.Len() != 1 || len(search(t, x, Query{Text: "pelican", Limit: 5})) != 0 || len(search(t, x, Query{Text: "ostrich", Limit: 5})) != 1 {
		t.Error("the earlier document is found")
	}
}

// However the documents came, the answers are the same to the last digit.
func TestAnswersDoNotDependOnHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	vocabulary := strings.Fields("create delete list issue page user file search code branch merge commit order pay mail send draw chart map route")
	text := func() string {
		var words []string
		for range 3 + random.IntN(12) {
			words = append(words, vocabulary[random.IntN(len(vocabulary))])
		}
		return strings.Join(words, " ")
	}
	x := build(t)
	now := map[string]Document{}
	for range 80 {
		var changed []Document
		var removed []string
		for range random.IntN(12) {
			d := doc(t, fmt.Sprintf("s%d", random.IntN(4)), fmt.Sprintf("tool_%d", random.IntN(120)), text())
			changed = append(changed, d)
			now[d.Name] = d
		}
		for name := range now {
			if random.IntN(20) == 0 && !slices.ContainsFunc(changed, func(d Document) bool { return d.Name == name }) {
				removed = append(removed, name)
				delete(now, name)
			}
		}
		must.Do(t, x.Apply(t.Context(), changed, removed))
		if len(x.pieces) > maxPieces {
			t.Fatalf("%d pieces", len(x.pieces))
		}
	}
	var docs []Document
	for _, d := range now {
		docs = append(docs, d)
	}
	fresh := build(t, docs...)
	if x.Len() != len(now) || fresh.Len() != len(now) {
		t.Fatalf("%d and %d documents, want %d", x.Len(), fresh.Len(), len(now))
	}
	for range 200 {
		q := Query{Text: text(), Limit: 10}
		if got, want := search(t, x, q), search(t, fresh, q); !slices.Equal(got, want) {
			t.Fatalf("%q finds\n%v, built at once\n%v", q.Text, got, want)
		}
	}
}

func TestSearchBesideApplyAndClose(t *testing.T) {
	x := build(t, small(t)...)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				found, err := x.Search(t.Context(), Query{Text: "create an issue", Limit: 3})
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || len(found.Hits) == 0 || found.Hits[0].Name != "github_create_issue" {
					t.Errorf("%v, %v", found, err)
					return
				}
			}
		})
	}
	for i := range 50 {
		must.Do(t, x.Apply(t.Context(), []Document{doc(t, "zoo", fmt.Sprint("feed", i), "Feed them.")}, []string{fmt.Sprint("zoo_feed", i-3)}))
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if _, err := x.Search(t.Context(), Query{Text: "issue", Limit: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("search: %v", err)
	}
	if err := x.Apply(t.Context(), nil, []string{"a"}); !errors.Is(err, ErrClosed) {
		t.Errorf("apply: %v", err)
	}
	if err := x.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if x.Len() != 0 {
		t.Errorf("%d documents", x.Len())
	}
}

func TestCancelledSearch(t *testing.T) {
	x := build(t, small(t)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Search(ctx, Query{Text: "issue", Limit: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	cycle := func() {
		x := must.Get(Build(t.Context(), small(t)))(t)
		search(t, x, Query{Text: "issue", Limit: 1})
		must.Do(t, x.Apply(t.Context(), nil, []string{"github_search"}))
		must.Do(t, x.Close())
	}
	cycle() // the library's work queue stays, once
	await.NoLeak(t, func() {
		for range 20 {
			cycle()
		}
	}, "blevesearch/")
}

// While documents are analysed, which takes long where there are many, the index says what it
// has, and takes vectors.
func TestAnIndexAnswersWhileItChanges(t *testing.T) {
	docs := numbered(t, 3)
	x := build(t, docs...)
	x.making.Lock() // as a change does
	defer x.making.Unlock()
	if x.Len() != 3 || len(x.Missing()) != 3 || len(x.Segments()) != 1 {
		t.Error("the index does not say what it has")
	}
	if err := x.PutVectors(docs[:1], [][]float32{axis(0, 4)}); err != nil || x.Vectors() != 1 {
		t.Errorf("%d vectors, %v", x.Vectors(), err)
	}
}

// A definition that was replaced is not kept alive by those that came with it.
func TestOldDefinitionsAreFreed(t *testing.T) {
	x := New()
	defer x.Close()
	var olds []weak.Pointer[tool.Def]
	func() {
		docs := numbered(t, 4*minPiece)
		for _, d := range docs {
			olds = append(olds, weak.Make(d.Def))
		}
		must.Get(x.Replace(t.Context(), docs))(t)
	}()
	changed := numbered(t, minPiece/2) // the rest of their piece stays, and the other pieces
	for i := range changed {
		changed[i].ServerDescription = "anew"
	}
	must.Do(t, x.Apply(t.Context(), changed, nil))
	search(t, x, Query{Text: "ad", Limit: 1}) // which makes the table of names
	runtime.GC()
	kept := 0
	for _, old := range olds[:len(changed)] {
		if old.Value() != nil {
			kept++
		}
	}
	if kept > 0 {
		t.Errorf("%d definitions are kept that were replaced", kept)
	}
}

// Changes of one document each leave large pieces alone, and move few documents.
func TestSmallChangesMoveLittle(t *testing.T) {
	sized := func(n int) *piece {
		p := &piece{docs: make([]*entry, n), live: n}
		for i := range p.docs {
			p.docs[i] = new(entry)
		}
		return p
	}
	const large, changes = 1000, 500
	pieces := []*piece{sized(large), sized(large), sized(large), sized(large), sized(large)}
	moved := 0
	for range changes {
		add := []*entry{new(entry)}
		if len(pieces) >= maxPieces {
			pieces, add = merge(pieces, add)
			moved += len(add)
		}
		pieces = append(pieces, sized(len(add)))
	}
	all := 0
	for _, p := range pieces {
		all += p.live
	}
	if all != 5*large+changes || len(pieces) > maxPieces || moved > 50*changes {
		t.Errorf("%d changes moved %d documents, and left %d in %d pieces", changes, moved, all, len(pieces))
	}
}
