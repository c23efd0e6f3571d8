package index

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// slip is what rounding to six digits, once or twice, leaves unexplained.
const slip = 3e-6

// checkExplained holds an explanation against the definition of each of its parts.
func checkExplained(t *testing.T, query string, hit Hit) {
	t.Helper()
	why := hit.Why
	if why == nil {
		t.Fatalf("%q: %s is not explained", query, hit.Name)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= slip) {
			t.Errorf("%q: %s: %s is %v, want %v in %+v", query, hit.Name, what, got, want, *why)
		}
	}
	sum := func(m map[string]float64) (total float64) {
		for _, v := range m {
			total += v
		}
		return total
	}
	near("the sum of the parts", why.Words+why.Vectors+why.Prior+why.Exact+why.Coverage+why.Twins+why.Deprecated+why.Unwanted, hit.Score)
	near("the sum of the fields", sum(why.Fields), why.Words)
	near("the sum of the terms", sum(why.Terms), why.Words)
	if !why.Estimated {
		near("what the similarity adds", why.Vectors, weightVectors*((1-weightClause)*why.Query+weightClause*why.Clause))
	}
	if why.Words < 0 || why.Exact < 0 || why.Coverage < 0 || why.Twins > 0 {
		t.Errorf("%q: %s: a part has the wrong sign: %+v", query, hit.Name, *why)
	}
	known := strings.Split("name,title,server,description,server description,parameters,parameter descriptions", ",")
	for field := range why.Fields {
		if !slices.Contains(known, field) {
			t.Errorf("%q: %s: unknown field %q", query, hit.Name, field)
		}
	}
	terms := slices.Collect(maps.Keys(parse(newAnalyzer(), query).terms))
	for term := range why.Terms {
		if !slices.Contains(terms, term) {
			t.Errorf("%q: %s: %q is no term of the query: %v", query, hit.Name, term, terms)
		}
	}
}

func TestTheExplanationAddsUp(t *testing.T) {
	docs := append(small(t),
		docOf(t, "meteo", `{"name":"currentWeather","title":"Weather now","description":"Weather at a place: base64 images.","inputSchema":{"properties":{"place":{"description":"where the weather is"},"URLs":{}}}}`, "All about the weather"),
		doc(t, "a", "create_issue", "Open a new issue in a repository."),
		doc(t, "b", "create_issue", "Open a new issue in a repository."))
	full := buildMeant(t, docs...)
	partly := build(t, docs...)
	all, some := map[string][]float32{}, map[string][]float32{}
	for i, d := range docs {
		all[d.Name] = meaning(Text(d))
		if i%2 == 0 {
			some[d.Name] = all[d.Name]
		}
	}
	putVectors(t, partly, some)
	for _, text := range []string{
		"weather", "the weather at a place", "creating issues in repositories", "sunny", // no word in common
		"create issue", "github.create_issue", // exact
		"open an issue, then decode base64 images and look for cake",
		"base64", "get URLs of pages", "必应搜索", "café", "get", "nothing of the kind zyx",
	} {
		for _, run := range []struct {
			name  string
			x     *Index
			q     Query
			check func(t *testing.T, hit Hit)
		}{
			{"words", build(t, docs...), Query{}, func(t *testing.T, hit Hit) {
				if hit.Why.Query != 0 || hit.Why.Clause != 0 || hit.Why.Estimated || hit.Why.Vectors != 0 || hit.Why.Twins != 0 {
					t.Errorf("parts that words alone do not have: %+v", *hit.Why)
				}
			}},
			{"hybrid", full, Query{Vectors: meant(text)}, func(t *testing.T, hit Hit) {
				if hit.Why.Estimated {
					t.Errorf("%s is estimated and has its vector", hit.Name)
				}
				if want := cosine64(meaning(text), all[hit.Name]); math.Abs(hit.Why.Query-want) > 1e-6 {
					t.Errorf("%s: the cosine is %v, want %v", hit.Name, hit.Why.Query, want)
				}
			}},
			{"estimated", partly, Query{Vectors: meant(text)}, func(t *testing.T, hit Hit) {
				if hit.Why.Estimated != (some[hit.Name] == nil) {
					t.Errorf("%s: estimated %v", hit.Name, hit.Why.Estimated)
				}
				most := 0.0 // what the most similar of the others gets
				for _, vector := range some {
					whole, clause := cosine64(meaning(text), vector), math.Inf(-1)
					for i, v := range meant(text) {
						if i > 0 || len(meant(text)) == 1 {
							clause = max(clause, cosine64(v, vector))
						}
					}
					most = max(most, weightVectors*((1-weightClause)*whole+weightClause*clause))
				}
				if hit.Why.Estimated && (hit.Why.Vectors < 0 || hit.Why.Vectors > most+1e-4) {
					t.Errorf("%s is estimated at %v, and the most similar of the others has %v", hit.Name, hit.Why.Vectors, most)
				}
			}},
			{"prior by words", build(t, docs...), Query{Prior: map[string]float64{"meteo_currentWeather": 1}}, func(t *testing.T, hit Hit) {
				if inUse := hit.Name == "meteo_currentWeather"; inUse != (hit.Why.Prior > 0) {
					t.Errorf("%s: prior %v", hit.Name, hit.Why.Prior)
				}
			}},
			{"prior", full, Query{Vectors: meant(text), Prior: map[string]float64{"meteo_currentWeather": 1, "files_base64_decode": .5}}, func(t *testing.T, hit Hit) {
				if inUse := hit.Name == "meteo_currentWeather" || hit.Name == "files_base64_decode"; inUse != (hit.Why.Prior > 0) {
					t.Errorf("%s: prior %v", hit.Name, hit.Why.Prior)
				}
			}},
			{"one server", full, Query{Vectors: meant(text), Server: "github"}, func(t *testing.T, hit Hit) {}},
		} {
			t.Run(text+"/"+run.name, func(t *testing.T) {
				run.q.Text, run.q.Limit, run.q.Explain = text, 20, true
				found := must.Get(run.x.Search(t.Context(), run.q))(t)
				plain := run.q
				plain.Explain = false
				unexplained := search(t, run.x, plain)
				if !slices.Equal(names(unexplained), names(found.Hits)) {
					t.Errorf("explained %v, else %v", names(found.Hits), names(unexplained))
				}
				for i, hit := range found.Hits {
					if unexplained[i].Why != nil || unexplained[i].Score != hit.Score {
						t.Errorf("%+v explained, else %+v", hit, unexplained[i])
					}
					checkExplained(t, text, hit)
					run.check(t, hit)
					isExact := text == "create issue" && strings.HasSuffix(hit.Name, "_create_issue") || text == "github.create_issue" && hit.Name == "github_create_issue"
					if isExact != (hit.Why.Exact > 0) {
						t.Errorf("%s: exact %v", hit.Name, hit.Why.Exact)
					}
				}
			})
		}
	}
}

// Where each word is found, and what it is worth there.
func TestTheExplanationNamesFieldsAndTerms(t *testing.T) {
	d := docOf(t, "office", `{"name":"send","title":"Postman","description":"Stamp it.","inputSchema":{"properties":{"recipient":{"description":"who receives the letter"}}}}`, "Correspondence")
	x := build(t, d, doc(t, "zoo", "feed", "Feed the pelicans."))
	for query, want := range map[string]struct{ field, term string }{
		"sending":        {"name", "send"},
		"postman":        {"title", "postman"},
		"offices":        {"server", "offic"},
		"stamped":        {"description", "stamp"},
		"dispatch":       {"name", "~send"},
		"correspondence": {"server description", "correspond"},
		"recipients":     {"parameters", "recipi"},
		"letters":        {"parameter descriptions", "letter"},
	} {
		why := search(t, x, Query{Text: query, Limit: 1, Explain: true})[0].Why
		if len(why.Fields) != 1 || why.Fields[want.field] == 0 || len(why.Terms) != 1 || why.Terms[want.term] == 0 {
			t.Errorf("%q is explained by fields %v and terms %v, want %s and %s", query, why.Fields, why.Terms, want.field, want.term)
		}
	}
}

// The form in which a word is written adds to its own stem, also where the word
// has parts.
func TestTheExplanationOfAWordOfParts(t *testing.T) {
	x := build(t, doc(t, "s", "base64", ""))
	why := search(t, x, Query{Text: "base64", Limit: 1, Explain: true})[0].Why
	whole, part := why.Terms["base64"], why.Terms["base"]
	if number := why.Terms["64"]; len(why.Terms) != 3 || math.Abs(whole-part) > slip || math.Abs(whole-number) > slip {
		t.Errorf("terms %v, want the same for base64, base and 64: each is there once", why.Terms)
	}
}

func TestTwinsAndCoverageAreExplained(t *testing.T) {
	x := build(t, doc(t, "s", "pay", ""), doc(t, "s", "pay2", ""), doc(t, "s", "map", ""))
	putVectors(t, x, map[string][]float32{"s_pay": {.9, 0, .436}, "s_pay2": {.89, 0, .456}, "s_map": {0, .8, .6}})
	const query = "zyxa zyxb, then zyxc zyxd"
	hits := hybrid(t, x, Query{Text: query, Limit: 3, Explain: true, Vectors: [][]float32{{.7, .714, 0}, axis(0, 3), axis(1, 3)}})
	if !slices.Equal(names(hits), []string{"s_pay", "s_map", "s_pay2"}) {
		t.Fatalf("%v", names(hits))
	}
	for i, want := range []struct{ coverage, twins float64 }{
		{weightCoverage * (.9 - coveredFrom), 0},
		{weightCoverage * (.8 - coveredFrom), 0},
		{0, -weightTwin * (.9*.89 + .436*.456 - twinFrom) / (1 - twinFrom)},
	} {
		checkExplained(t, query, hits[i])
		if why := hits[i].Why; math.Abs(why.Coverage-want.coverage) > .01 || math.Abs(why.Twins-want.twins) > .01 {
			t.Errorf("%s: coverage %v and twins %v, want %+v", hits[i].Name, why.Coverage, why.Twins, want)
		}
	}
}
