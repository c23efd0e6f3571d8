package index

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"toolfinch/internal/must"
)

func TestPlaceIsThatOfALongerAnswer(t *testing.T) {
	docs := append(small(t), doc(t, "a", "create_issue", "Open a new issue in a repository."), doc(t, "b", "create_issue", "Open a new issue in a repository."))
	for kind, x := range map[string]*Index{"words": build(t, docs...), "hybrid": buildMeant(t, docs...)} {
		for _, text := range []string{"weather", "create issue", "github.create_issue", "open an issue, then decode base64 images", "nothing of the kind zyx", "base64"} {
			q := Query{Text: text, Limit: len(docs), Explain: true}
			if kind == "hybrid" {
				q.Vectors = meant(text)
			}
			all := search(t, x, q)
			for _, d := range docs {
				q.Limit, q.Place = len(docs), d.Name
				found := must.Get(x.Search(t.Context(), q))(t)
				at := slices.Index(names(all), d.Name)
				if !slices.Equal(names(found.Hits), names(all)) || found.Place.Rank != at+1 || found.Place.Name != d.Name {
					t.Errorf("%s: %q: %s has the place %+v, and is at %d", kind, text, d.Name, found.Place, at)
				}
				q.Limit = 1
				found = must.Get(x.Search(t.Context(), q))(t)
				switch place := found.Place; {
				case (place.Rank == 0) != (at < 0), at >= 0 && (place.Rank == 1) != (found.Hits[0].Name == d.Name):
					t.Errorf("%s: %q: with one hit, %s has the place %+v, and is at %d", kind, text, d.Name, place, at)
				case place.Rank > 1:
					checkExplained(t, text, place.Hit)
				case place.Why == nil:
					t.Errorf("%s: %q: %s is not explained", kind, text, d.Name)
				}
			}
		}
	}
}

func TestInsteadAnswersAsAnIndexWithTheOtherDocument(t *testing.T) {
	docs := small(t)
	x := build(t, docs...)
	must.Do(t, x.Apply(t.Context(), []Document{doc(t, "late", "arrival", "Comes later.")}, []string{docs[0].Name}))
	docs = append(docs[1:], doc(t, "late", "arrival", "Comes later."))
	before := x.snapshot()
	const query = "make a sandwich of weather, files and issues"
	for i, old := range docs {
		other := *old.Def
		other.Description += " A sandwich for later."
		name := fmt.Sprint("renamed", i)
		tried := must.Get(before.Instead(t.Context(), old.Name, Document{name, &other, old.ServerDescription}))(t)
		fresh := slices.Clone(docs)
		fresh[i] = Document{name, &other, old.ServerDescription}
		want := search(t, build(t, fresh...), Query{Text: query, Limit: 50})
		got := must.Get(tried.Search(t.Context(), Query{Text: query, Limit: 50}))(t).Hits
		if tried.Len() != len(docs) || !slices.EqualFunc(got, want, func(a, b Hit) bool { return a.Name == b.Name && math.Abs(a.Score-b.Score) < slip }) {
			t.Errorf("%s: %v, want %v", old.Name, got, want)
		}
		only := tried.Subset([]string{name})
		if got := must.Get(tried.Search(t.Context(), Query{Text: query, Limit: 50, Among: only}))(t).Hits; len(got) != 1 || got[0].Name != name {
			t.Errorf("among %s alone there are %v", name, got)
		}
	}
	if after := x.snapshot(); after.Len() != before.Len() || !slices.Equal(after.pieces, before.pieces) {
		t.Error("the index has changed")
	}
	if _, err := before.Instead(t.Context(), "nobody", docs[0]); err == nil {
		t.Error("a document that is not there was replaced")
	}
}
