package index

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// stored is what another process reads of an index.
func stored(t testing.TB, x *Index) (all [][]byte) {
	t.Helper()
	for _, s := range x.Segments() {
		data := must.Get(s.Bytes())(t)
		all = append(all, data)
	}
	return all
}

func read(all [][]byte) *Stored {
	known := &Stored{}
	for _, data := range all {
		known.Read(data)
	}
	return known
}

// recalled is an index of docs over what is stored.
func recalled(t testing.TB, all [][]byte, docs ...Document) *Index {
	t.Helper()
	x := New()
	x.Recall(read(all), false)
	must.Get(x.Replace(t.Context(), docs))(t)
	t.Cleanup(func() { x.Close() })
	return x
}

func TestAStoredIndexAnswersLikeOneThatIsBuilt(t *testing.T) {
	letters := []Document{doc(t, "mail", "send", "Send a letter"), doc(t, "mail", "read", "Read a letter"), doc(t, "post", "burn", "Burn a letter. Deprecated: read it")}
	before := append(numbered(t, 2*minPiece), letters...)
	other := doc(t, "mail", "send", "Send a parcel, never a letter")
	described := letters[1]
	described.ServerDescription = "Letters of all kinds"
	all := stored(t, build(t, before...))
	if len(all) < 2 {
		t.Fatalf("%d segments: there are to be several", len(all))
	}
	damaged := slices.Clone(all)
	damaged[0] = append(bytes.Clone(all[0][:100]), all[0][101:]...)
	anotherVersion := slices.Clone(all)
	anotherVersion[1] = bytes.Clone(all[1])
	anotherVersion[1][3]++
	for name, test := range map[string]struct {
		stored [][]byte
		docs   []Document
	}{
		"the same documents":         {all, before},
		"another order":              {all, slices.Concat(letters, numbered(t, 2*minPiece))},
		"a document changed":         {all, append(numbered(t, 2*minPiece), other, letters[1], letters[2])},
		"a server described":         {all, append(numbered(t, 2*minPiece), letters[0], described, letters[2])},
		"a document more":            {all, append(slices.Clone(before), doc(t, "post", "open", "Open a letter"))},
		"documents gone":             {all, before[50:]},
		"nearly all gone":            {all, letters},
		"all gone":                   {all, nil},
		"each segment twice":         {slices.Concat(all, all), before},
		"nothing stored":             {nil, before},
		"a damaged segment":          {damaged, before},
		"a segment of other version": {anotherVersion, before},
		"no segments":                {[][]byte{nil, {1}, make([]byte, 60)}, before},
	} {
		t.Run(name, func(t *testing.T) {
			x, want := recalled(t, test.stored, test.docs...), build(t, test.docs...)
			for _, query := range []string{"letter", "send", "mail.send", "burn a letter", "adds numbers", "add_7", "add", "letters of all kinds", "ette"} {
				query := Query{Text: query, Limit: 20}
				if got, want := search(t, x, query), search(t, want, query); !slices.Equal(got, want) {
					t.Errorf("%q: %v, not %v", query.Text, got, want)
				}
			}
			if x.Len() != want.Len() {
				t.Errorf("%d documents, not %d", x.Len(), want.Len())
			}
			// Changes go on from there.
			next := append(slices.Clone(letters[:2]), doc(t, "post", "burn", "Burn a parcel"))
			for _, x := range []*Index{x, want} {
				must.Get(x.Replace(t.Context(), next))(t)
			}
			query := Query{Text: "burn", Limit: 20}
			if got, want := search(t, x, query), search(t, want, query); !slices.Equal(got, want) {
				t.Errorf("after a change: %v, not %v", got, want)
			}
		})
	}
}

func TestWhatIsStoredIsNotAnalysedAgain(t *testing.T) {
	docs := numbered(t, 2*minPiece)
	x := build(t, docs...)
	all := stored(t, x)
	again := recalled(t, all, docs...)
	if got, want := keys(again), keys(x); !slices.Equal(got, want) {
		t.Errorf("segments %x, not %x", got, want)
	}
	for i, p := range again.pieces {
		if p.segment == x.pieces[i].segment || !bytes.Equal(all[i], stored(t, again)[i]) {
			t.Error("what is read is not what was stored")
		}
	}
}

// A start takes a part of the documents first, and then all: it ends as if all had come at once.
func TestAStoredIndexIsTakenOverInTwoSteps(t *testing.T) {
	letter := doc(t, "mail", "send", "Send a letter")
	docs := append(numbered(t, 4*minPiece), letter)
	all := stored(t, build(t, docs...))
	known := read(all)
	for name, test := range map[string]struct {
		stored *Stored
		first  []Document
	}{
		"a part of each segment":         {known, append(numbered(t, 2), letter)},
		"and what is stored of none":     {known, append(numbered(t, 2), doc(t, "mail", "send", "Send a parcel"))},
		"nothing":                        {known, nil},
		"what is stored of none":         {known, numbered(t, 6*minPiece)[4*minPiece:]},
		"while nothing of it was stored": {&Stored{}, numbered(t, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			x := New()
			defer x.Close()
			same := func(docs []Document) {
				t.Helper()
				want := build(t, docs...)
				for _, query := range []string{"letter", "mail.send", "add_7", "adds numbers"} {
					query := Query{Text: query, Limit: 20}
					if got, want := search(t, x, query), search(t, want, query); !slices.Equal(got, want) {
						t.Errorf("%q: %v, not %v", query.Text, got, want)
					}
				}
			}
			for _, step := range [][]Document{test.first, docs} {
				x.Recall(test.stored, len(step) < len(docs))
				must.Get(x.Replace(t.Context(), step))(t)
				same(step)
			}
			if got := keys(x); test.stored == known && !slices.Equal(got, keys(build(t, docs...))) {
				t.Errorf("%d segments are not those that were stored", len(got))
			}
			if x.stored != nil {
				t.Error("what is stored is kept")
			}
		})
	}
}

// What is read of a stored index is let go of, even where nothing is taken of it.
func TestAnEmptyIndexKeepsNothingStored(t *testing.T) {
	if x := recalled(t, stored(t, build(t, numbered(t, 3)...))); x.stored != nil {
		t.Error("what is stored is kept")
	}
}

func keys(x *Index) (all []SegmentKey) {
	for _, s := range x.Segments() {
		all = append(all, s.Key)
	}
	return all
}

// varied are documents for whom everything that analysis does is done.
func varied(t testing.TB) []Document {
	def := func(kind tool.Kind, raw string) Document {
		def := must.Get(tool.ParseKind(kind, "octo-hub", []byte(raw)))(t)
		return Document{Name: Key(kind, "hub_"+def.ID.Name), Def: def, ServerDescription: "Hosts repositories of code"}
	}
	schema := `"inputSchema":{"type":"object","description":"left out","properties":{"pullRequestIDs":{"type":"array","description":"The user's pull requests","items":{"properties":{"base64":{"description":"don't"}}}},
		"place":{"anyOf":[{"description":"a place"},{"$defs":{"x":{"description":"inner"}}}]}}}`
	return []Document{
		def(tool.KindTool, `{"name":"getURLs_v2","title":"Get the URLs","description":"Running searches, naïve cafés and HTTPServer2 of 東京タワー; ASAP",`+schema+`}`),
		def(tool.KindTool, `{"name":"old","description":"Deprecated: use getURLs_v2. `+strings.Repeat("very long text ", 3000)+`"}`),
		def(tool.KindPrompt, `{"name":"summary","arguments":[{"name":"style","description":"how it's written"}]}`),
		def(tool.KindResource, `{"uri":"file:///my%20notes/today.md","name":"notes","mimeType":"text/markdown"}`),
		def(tool.KindTemplate, `{"uriTemplate":"db://{table}/{row_id}","name":"rows"}`),
	}
}

// What is stored is of use only where analysis yields the same.
func TestAnalysisVersion(t *testing.T) {
	h := sha256.New()
	a := newAnalyzer()
	for _, d := range varied(t) {
		for _, f := range a.document(d).fields {
			slices.SortFunc(f.counts, func(a, b count) int { return strings.Compare(a.term, b.term) })
			fmt.Fprintln(h, f.name, f.options, f.counts)
		}
	}
	const file = "testdata/analysis.txt"
	got := fmt.Sprintf("%d %x\n", analysisVersion, h.Sum(nil))
	if os.Getenv("UPDATE_ANALYSIS") != "" {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if got != string(want) {
		t.Errorf("analysis yields %s, and %s has %s: raise analysisVersion, or stored indexes keep what was; then run this with UPDATE_ANALYSIS=1", got, file, want)
	}
}
