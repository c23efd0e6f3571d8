package index

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// synonyms are the words that mean the same to meaning, and nothing to BM25.
var synonyms = map[string]string{"bug": "issu", "report": "open", "sunni": "weather", "gloomi": "weather", "forecast": "weather", "spend": "pay"}

// meaning stands in for a model: texts are alike as far as they use the same
// words, or words of the same sense. Vectors have 64 numbers and length 1.
func meaning(text string) []float32 {
	sum := make([]float32, 64)
	for _, term := range Terms(text) {
		if sense, ok := synonyms[term]; ok {
			term = sense
		}
		h := fnv.New64a()
		h.Write([]byte(term))
		for i, x := range randomUnit(rand.New(rand.NewPCG(h.Sum64(), 0)), len(sum)) {
			sum[i] += x
		}
	}
	v, err := unit(sum)
	if err != nil { // no words: something that is like nothing else
		return randomUnit(rand.New(rand.NewPCG(9, 9)), len(sum))
	}
	return v
}

// meant returns the vectors of a query.
func meant(text string) [][]float32 {
	var out [][]float32
	for _, t := range QueryTexts(text) {
		out = append(out, meaning(t))
	}
	return out
}

// buildMeant is an index in which every document has its vector.
func buildMeant(t testing.TB, docs ...Document) *Index {
	t.Helper()
	x := build(t, docs...)
	all := map[string][]float32{}
	for _, d := range docs {
		all[d.Name] = meaning(Text(d))
	}
	putVectors(t, x, all)
	return x
}

func hybrid(t testing.TB, x *Index, q Query) []Hit {
	t.Helper()
	if q.Vectors == nil {
		q.Vectors = meant(q.Text)
	}
	found := must.Get(x.Search(t.Context(), q))(t)
	if !found.Vectors {
		t.Fatalf("%q: words alone answered", q.Text)
	}
	return found.Hits
}

func TestHybridFindsByWordsAndByMeaning(t *testing.T) {
	docs := append(small(t),
		doc(t, "meteo", "current_weather", "Weather at a place."),
		doc(t, "bank", "pay", "Pay a bill."),
		doc(t, "lab", "qx77_assay", "Run it."))
	x := buildMeant(t, docs...)
	for _, test := range []struct{ what, query, want string }{
		{"no word in common", "gloomy", "meteo_current_weather"},
		{"one word of two in common", "report a bug", "github_create_issue"},
		{"a rare term", "please do something about qx77 for the office and its correspondence account", "lab_qx77_assay"},
		{"an exact name", "get_urls", "web_getURLs"},
		{"a word of another script", "必应", "bing_bing_search"},
	} {
		t.Run(test.what, func(t *testing.T) {
			if hits := hybrid(t, x, Query{Text: test.query, Limit: 3}); len(hits) == 0 || hits[0].Name != test.want {
				t.Errorf("%q finds %v, want %s first", test.query, hits, test.want)
			}
		})
	}
	if hits := search(t, x, Query{Text: "gloomy", Limit: 3}); len(hits) != 0 {
		t.Errorf("by words alone %v is found, so that the first case tests nothing", hits)
	}
}

// corpus is a catalogue of made up tools, and queries for them.
func corpus(t testing.TB, n int) (docs []Document, queries []string) {
	random := rand.New(rand.NewPCG(11, 12))
	text := func(n int) string {
		words := make([]string, n)
		for i := range words {
			words[i] = fmt.Sprint("word", letters(int(random.ExpFloat64()*25)))
		}
		return strings.Join(words, " ")
	}
	for i := range n {
		docs = append(docs, doc(t, fmt.Sprint("s", i%7), "tool"+letters(i), text(12)))
	}
	for range 100 {
		queries = append(queries, text(4))
	}
	return docs, queries
}

// letters is a number as a word without digits.
func letters(n int) string { return string([]byte{'a' + byte(n/26%26), 'a' + byte(n%26)}) }

func TestWithoutVectorsWordsDecideAlone(t *testing.T) {
	docs, queries := corpus(t, 60)
	x, words := build(t, docs...), build(t, docs...)
	for _, text := range queries {
		found, err := x.Search(t.Context(), Query{Text: text, Limit: 10, Vectors: meant(text)})
		if err != nil || found.Vectors {
			t.Fatalf("%q: vectors %v, error %v", text, found.Vectors, err)
		}
		if want := search(t, words, Query{Text: text, Limit: 10}); !slices.Equal(found.Hits, want) {
			t.Fatalf("%q finds %v, want %v", text, found.Hits, want)
		}
	}
	// Queries without vectors are not kept from documents with some.
	full := buildMeant(t, docs...)
	for _, text := range queries {
		if got, want := search(t, full, Query{Text: text, Limit: 10}), search(t, words, Query{Text: text, Limit: 10}); !slices.Equal(got, want) {
			t.Fatalf("%q without vectors finds %v, want %v", text, got, want)
		}
	}
}

// While one tool alone has a vector, the others keep their order.
func TestToolsWithoutVectorsKeepTheirOrder(t *testing.T) {
	docs, queries := corpus(t, 60)
	docs = append(docs, doc(t, "first", "embedded", "Nothing of the kind."))
	x, words := build(t, docs...), build(t, docs...)
	for _, vector := range [][]float32{meaning("wordaa wordab"), axis(0, 64)} {
		must.Do(t, x.PutVectors(docs[60:], [][]float32{vector}))
		for _, text := range queries {
			got := names(hybrid(t, x, Query{Text: text, Limit: 40}))
			got = slices.DeleteFunc(got, func(name string) bool { return name == "first_embedded" })
			if want := names(search(t, words, Query{Text: text, Limit: 40})); !slices.Equal(got, want[:len(got)]) || len(want)-len(got) > 1 {
				t.Fatalf("%q finds %v, want %v", text, got, want)
			}
		}
	}
}

func TestAToolWithoutVectorIsNeitherBuriedNorLifted(t *testing.T) {
	docs := []Document{
		doc(t, "a", "current_weather", "Weather at a place, now."),      // all of the query
		doc(t, "b", "weather", "Nothing else."),                         // a part of it
		doc(t, "c", "clock", "Time of day."),                            // no word of it
		doc(t, "d", "climate", "Sunny, and its forecast is as current"), // its meaning
		doc(t, "e", "ledger", "Accounts and books."),
		doc(t, "f", "mail", "Letters and parcels."),
	}
	const query = "current weather"
	all := map[string][]float32{}
	for _, d := range docs {
		all[d.Name] = meaning(Text(d))
	}
	place := func(without string) (at int, complete bool) {
		x := build(t, docs...)
		known := map[string][]float32{}
		for name, v := range all {
			if name != without {
				known[name] = v
			}
		}
		putVectors(t, x, known)
		hits := names(hybrid(t, x, Query{Text: query, Limit: 10}))
		return slices.Index(hits, without), x.Vectors() == len(docs)-1
	}
	complete := names(hybrid(t, buildMeant(t, docs...), Query{Text: query, Limit: 10}))
	if complete[0] != "a_current_weather" {
		t.Fatalf("with all vectors: %v", complete)
	}
	for _, test := range []struct {
		without string
		want    func(at int) bool
		say     string
	}{
		{"a_current_weather", func(at int) bool { return at == 0 }, "first: its words say so"},
		{"b_weather", func(at int) bool { return at == 1 || at == 2 }, "after the first, before those without a word"},
		{"c_clock", func(at int) bool { return at < 0 }, "not at all: nothing speaks for it"},
	} {
		if at, ok := place(test.without); !ok || !test.want(at) {
			t.Errorf("%s without its vector is at place %d, want it %s", test.without, at, test.say)
		}
	}
}

func TestQueryVectorsThatDoNotFitAreRefused(t *testing.T) {
	x := buildMeant(t, small(t)...)
	fits := meaning("issue")
	for what, bad := range map[string][]float32{
		"another dimension": axis(0, 63), "nothing": {}, "zero": make([]float32, 64),
		"not a number": append(slices.Clone(fits[:63]), float32(math.NaN())),
		"infinite":     append(slices.Clone(fits[:63]), float32(math.Inf(-1))),
	} {
		for _, vectors := range [][][]float32{{bad}, {fits, bad}} {
			if _, err := x.Search(t.Context(), Query{Text: "issue", Limit: 3, Vectors: vectors}); !errors.Is(err, ErrVector) {
				t.Errorf("%s: error %v, want ErrVector", what, err)
			}
		}
	}
	if hits := hybrid(t, x, Query{Text: "issue", Limit: 1}); len(hits) != 1 || hits[0].Name != "github_create_issue" {
		t.Errorf("afterwards %v is found", hits)
	}
}

func TestExactNameComesFirstWhateverVectorsSay(t *testing.T) {
	docs := small(t)
	for i := range 30 {
		docs = append(docs, doc(t, fmt.Sprintf("noise%02d", i), "search_code_search_code",
			strings.Repeat("github search code order send to do find files and replace text. ", 3)))
	}
	docs = append(docs,
		doc(t, "steps", "find_files_and_replace_text", "What it says."),
		doc(t, "words", "to-do", "Stop words."), // no word of its name is indexed
		doc(t, "words", "get", "A request word."),
		doc(t, "unsaid", "xq_zv_7", ""))
	for _, vectors := range []struct {
		name string
		of   func(exact bool) []float32
	}{
		{"that agree", func(exact bool) []float32 { return map[bool][]float32{true: axis(0, 2), false: axis(1, 2)}[exact] }},
		{"that say nothing", func(bool) []float32 { return axis(1, 2) }},
		{"that prefer all others", func(exact bool) []float32 { return map[bool][]float32{true: axis(1, 2), false: axis(0, 2)}[exact] }},
		{"that say the opposite", func(exact bool) []float32 { return map[bool][]float32{true: {-1, 0}, false: axis(1, 2)}[exact] }},
	} {
		for _, test := range []struct{ query, want string }{
			{"search_code", "github_search_code"},
			{"search code", "github_search_code"},
			{"searchCode", "github_search_code"},
			{"github_search_code", "github_search_code"},
			{"github.search_code", "github_search_code"},
			{"SEARCH", "github_search"},
			{" send ", "mail_send"},
			{"cafe.order", "café_order"},
			{"find files and replace text", "steps_find_files_and_replace_text"},
			{"steps.find_files_and_replace_text", "steps_find_files_and_replace_text"},
			{"to-do", "words_to-do"},
			{"get", "words_get"},
			{"xq_zv_7", "unsaid_xq_zv_7"},
		} {
			t.Run(test.query+" with vectors "+vectors.name, func(t *testing.T) {
				x := build(t, docs...)
				all := map[string][]float32{}
				for _, d := range docs {
					all[d.Name] = vectors.of(d.Name == test.want)
				}
				putVectors(t, x, all)
				q := Query{Text: test.query, Limit: 2}
				for range QueryTexts(test.query) {
					q.Vectors = append(q.Vectors, axis(0, 2))
				}
				if hits := hybrid(t, x, q); len(hits) == 0 || hits[0].Name != test.want {
					t.Errorf("%v is found, want %s first", hits, test.want)
				}
			})
		}
	}
}

// Of several tools whose names differ in case and separators only, the one that
// is spelt as the query is comes first.
func TestTheSpellingOfAnExactNameCounts(t *testing.T) {
	docs := []Document{
		doc(t, "github", "search", "Look for anything."), doc(t, "git", "hub_search", "Search a hub."),
		doc(t, "crm", "getUser", "One of them."), doc(t, "crm", "get_user", "One of them."), doc(t, "crm", "GET-USER", "One of them."),
	}
	x := build(t, docs...)
	random := rand.New(rand.NewPCG(1, 2))
	withVectors := build(t, docs...)
	all := map[string][]float32{}
	for _, d := range docs {
		all[d.Name] = randomUnit(random, 8)
	}
	putVectors(t, withVectors, all)
	for _, d := range docs {
		for _, query := range []string{d.Name, d.Def.ID.String()} {
			if hits := search(t, x, Query{Text: query, Limit: 5}); hits[0].Name != d.Name {
				t.Errorf("%q finds %v by words, want %s first", query, names(hits), d.Name)
			}
			for range 5 {
				hits := hybrid(t, withVectors, Query{Text: query, Limit: 5, Vectors: [][]float32{randomUnit(random, 8)}})
				if hits[0].Name != d.Name {
					t.Errorf("%q finds %v with vectors, want %s first", query, names(hits), d.Name)
					break
				}
			}
		}
	}
}

func TestHybridIsFilteredBeforeTheCut(t *testing.T) {
	var docs []Document
	for i := range 60 {
		docs = append(docs, doc(t, "loud", "weather_"+letters(i), "Weather forecast."))
	}
	docs = append(docs, doc(t, "quiet", "sky", "What the weather is like, among other things."), doc(t, "quiet", "clock", "Time."))
	x := buildMeant(t, docs...)
	for text, want := range map[string]string{
		"forecast": "quiet_sky", "the weather": "quiet_sky", "loud_weather_aa": "quiet_sky", "weather forecast and then time please": "quiet_clock",
	} {
		hits := hybrid(t, x, Query{Text: text, Server: "quiet", Limit: 1})
		if len(hits) != 1 || hits[0].Name != want {
			t.Errorf("%q finds %v of the quiet server, want %s", text, hits, want)
		}
		for _, hit := range hybrid(t, x, Query{Text: text, Server: "quiet", Limit: 50}) {
			if !strings.HasPrefix(hit.Name, "quiet_") {
				t.Errorf("%q finds %s of another server", text, hit.Name)
			}
		}
	}
	if hits := hybrid(t, x, Query{Text: "weather", Server: "nobody", Limit: 5}); len(hits) != 0 {
		t.Errorf("a server that is not there: %v", hits)
	}
}

// A longer answer begins with the shorter one.
func TestTheLimitOnlyCuts(t *testing.T) {
	docs, queries := corpus(t, 80)
	x := buildMeant(t, docs...)
	for _, text := range queries {
		text += ", and then " + queries[0]
		all := hybrid(t, x, Query{Text: text, Limit: 20})
		for limit := range 20 {
			if got := search(t, x, Query{Text: text, Limit: limit, Vectors: meant(text)}); !slices.Equal(got, all[:min(limit, len(all))]) {
				t.Fatalf("%q with limit %d finds %v, with 20 %v", text, limit, got, all)
			}
		}
	}
}

// Twelve tools are more like the query of two clauses than the one that serves
// its second clause.
func TestEachClauseIsServed(t *testing.T) {
	const dim = 16
	mix := func(parts map[int]float32) []float32 {
		v := make([]float32, dim)
		for i, x := range parts {
			v[i] = x
		}
		return v
	}
	const flights, weather, other = 0, 1, 2
	vectors := map[string][]float32{"home_sky": mix(map[int]float32{weather: .9, other: .436})}
	docs := []Document{doc(t, "home", "sky", "")}
	for i := range 12 { // like the first clause, and no twins
		d := doc(t, "air", "flights_"+letters(i), "")
		docs = append(docs, d)
		vectors[d.Name] = mix(map[int]float32{flights: .9, other + 1 + i: .436})
	}
	x := build(t, docs...)
	putVectors(t, x, vectors)
	both, first, second := mix(map[int]float32{flights: .8, weather: .6}), axis(flights, dim), axis(weather, dim)
	for _, test := range []struct {
		what, query string
		vectors     [][]float32
		place       int // of home_sky
	}{
		{"no clauses", "zyxa zyxb", [][]float32{both}, 12},
		{"two clauses", "zyxa zyxb, then zyxc zyxd", [][]float32{both, first, second}, 1},
		{"two clauses of the same sense", "zyxa zyxb, then zyxa zyxc", [][]float32{both, first, first}, 12},
	} {
		if n := len(QueryTexts(test.query)); n != len(test.vectors) {
			t.Fatalf("%q: %d texts are embedded, want %d", test.query, n, len(test.vectors))
		}
		hits := names(hybrid(t, x, Query{Text: test.query, Limit: 13, Vectors: test.vectors}))
		if got := slices.Index(hits, "home_sky"); got != test.place {
			t.Errorf("%s: home_sky is at place %d of %v, want %d", test.what, got, hits, test.place)
		}
		if test.place == 1 {
			short := names(hybrid(t, x, Query{Text: test.query, Limit: 2, Vectors: test.vectors}))
			if !slices.Equal(short, hits[:2]) {
				t.Errorf("%s: an answer of two has %v, want one for each", test.what, short)
			}
		}
	}
}

// Also where twins take more from a score than it has.
func TestScoresAreAboveZeroAndFall(t *testing.T) {
	var docs []Document
	for i := range 20 {
		docs = append(docs, doc(t, fmt.Sprint("s", letters(i)), "fetch", "Fetch a page."))
	}
	x := build(t, docs...)
	all := map[string][]float32{}
	for _, d := range docs {
		all[d.Name] = axis(0, 2)
	}
	putVectors(t, x, all)
	hits := hybrid(t, x, Query{Text: "a page", Limit: 20, Vectors: [][]float32{axis(1, 2)}})
	for i, hit := range hits {
		if hit.Score <= 0 || i > 0 && hit.Score > hits[i-1].Score {
			t.Fatalf("hit %d of %v", i, hits)
		}
	}
}

func TestTwinsDoNotCrowdOutTheRest(t *testing.T) {
	docs := []Document{
		doc(t, "a", "create_issue", "Open an issue in a repository."),
		doc(t, "b", "create_issue", "Open an issue in a repository."),
		doc(t, "c", "create_issue", "Open an issue in a repository."),
		doc(t, "d", "issue_tracker", "Open and close an issue in a project."),
		doc(t, "e", "ledger", "Accounts."), doc(t, "f", "map", "Routes."), doc(t, "g", "mail", "Letters."),
	}
	all := map[string][]float32{}
	for _, d := range docs {
		all[d.Name] = meaning(d.Def.ID.Name + d.Def.Description) // without the server: the same for twins
	}
	x := build(t, docs...)
	putVectors(t, x, all)
	const query = "open an issue"
	if got := names(search(t, x, Query{Text: query, Limit: 3})); !slices.Equal(got, []string{"a_create_issue", "b_create_issue", "c_create_issue"}) {
		t.Fatalf("by words alone %v, so that this tests nothing", got)
	}
	got := hybrid(t, x, Query{Text: query, Limit: 4, Explain: true})
	if top := names(got[:3]); !slices.Contains(top, "d_issue_tracker") || got[0].Name != "a_create_issue" {
		t.Errorf("%v, want a_create_issue first and d_issue_tracker among the first three", names(got))
	}
	if hits := hybrid(t, x, Query{Text: "create_issue", Limit: 3}); !slices.Equal(names(hits), []string{"a_create_issue", "b_create_issue", "c_create_issue"}) {
		t.Errorf("the exact name finds %v, want all that have it first", names(hits))
	}
}

// What use says moves a tool up by 15 % of the best score and no more.
func TestThePriorIsBounded(t *testing.T) {
	docs, queries := corpus(t, 60)
	x := build(t, docs...)
	lifted, kept := 0, 0
	for i, text := range queries {
		plain := search(t, x, Query{Text: text, Limit: 60})
		if len(plain) < 2 {
			continue
		}
		for _, prior := range []float64{-3, 0, .5, 1, 1000, math.Inf(1)} {
			last := plain[1+i%2*(len(plain)-2)] // the second, or the last
			amount := weightPrior * min(max(prior, 0), 1) * plain[0].Score
			hits := search(t, x, Query{Text: text, Limit: 60, Prior: map[string]float64{last.Name: prior, "nobody": 1}})
			at := slices.IndexFunc(hits, func(h Hit) bool { return h.Name == last.Name })
			if len(hits) != len(plain) || math.Abs(hits[at].Score-last.Score-amount) > 2e-6 {
				t.Fatalf("%q: a prior of %v makes %v of %v, want %v more", text, prior, hits[at], last, amount)
			}
			if amount > .15*plain[0].Score+1e-9 {
				t.Fatalf("a prior of %v adds %v to a best score of %v", prior, amount, plain[0].Score)
			}
			for i, hit := range hits {
				if i < at && hit.Score < hits[at].Score || i > at && hit.Score > hits[at].Score {
					t.Fatalf("%q: %v", text, hits)
				}
			}
			switch {
			case at == 0:
				lifted++
			default:
				kept++
			}
		}
	}
	if lifted == 0 || kept == 0 {
		t.Errorf("%d of the tools came to the top and %d did not: one side is not tested", lifted, kept)
	}
}

func TestThePriorDecidesBetweenEqualsAndNothingElse(t *testing.T) {
	docs := append(small(t),
		doc(t, "y1", "fetch", "Fetch a page."), doc(t, "y2", "fetch", "Fetch a page."), doc(t, "y3", "fetch", "Fetch a page."))
	words := build(t, docs...)
	full := buildMeant(t, docs...)
	for _, test := range []struct {
		what, query, server string
		prior               map[string]float64
		first               string
	}{
		{"the best of equals by name", "fetch me a page", "", nil, "y1_fetch"},
		{"of equals the one in use", "fetch me a page", "", map[string]float64{"y3_fetch": .5}, "y3_fetch"},
		{"an exact exposed name", "github_search", "", map[string]float64{"github_search_code": 1}, "github_search"},
		{"an exact server.name", "github.search", "", map[string]float64{"github_search_code": 1e9}, "github_search"},
		{"an exact bare name", "search_code", "", map[string]float64{"github_search": 1, "bing_bing_search": 1}, "github_search_code"},
		{"among exact ones the one in use", "fetch", "", map[string]float64{"y2_fetch": 1}, "y2_fetch"},
		{"the server that is asked for", "fetch me a page", "y1", map[string]float64{"y2_fetch": 1}, "y1_fetch"},
	} {
		t.Run(test.what, func(t *testing.T) {
			q := Query{Text: test.query, Server: test.server, Limit: 3, Prior: test.prior}
			if hits := search(t, words, q); hits[0].Name != test.first {
				t.Errorf("by words %v, want %s first", hits, test.first)
			}
			if hits := hybrid(t, full, q); hits[0].Name != test.first {
				t.Errorf("with vectors %v, want %s first", hits, test.first)
			}
		})
	}
	// It lifts what was found, and finds nothing.
	if hits := search(t, words, Query{Text: "issue", Limit: 20, Prior: map[string]float64{"web_getURLs": 1}}); slices.Contains(names(hits), "web_getURLs") {
		t.Errorf("a prior alone makes a hit: %v", hits)
	}
}

// What is embedded of a query: all of it, and its clauses where it has several.
// An end that says nothing is no clause.
func TestQueryTexts(t *testing.T) {
	for query, want := range map[string][]string{
		"find a file":                    {"find a file"},
		"find a file.":                   {"find a file."},
		"find a file and":                {"find a file and"},
		"find a file, then mail it":      {"find a file, then mail it", "find a file,", "mail it"},
		"Find a file. Mail it to Ann.":   {"Find a file. Mail it to Ann.", "Find a file.", "Mail it to Ann."},
		"search and replace in one file": {"search and replace in one file"}, // one word is no clause
	} {
		if got := QueryTexts(query); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}
