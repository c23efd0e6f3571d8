package index

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"toolfinch/internal/must"
)

// numbered are so many more than others have that the library index is built anew.
func numbered(t testing.TB, n int) (docs []Document) {
	for i := range n {
		docs = append(docs, doc(t, "calc", fmt.Sprintf("add_%d", i), "Adds numbers"))
	}
	return docs
}

func TestASnapshotAnswersFromItsOwnDocuments(t *testing.T) {
	before := []Document{doc(t, "mail", "send", "Send a letter"), doc(t, "mail", "read", "Read a letter")}
	query := Query{Text: "letter", Limit: 9, Explain: true}
	for name, after := range map[string][]Document{
		"nothing left":      nil,
		"another text":      {doc(t, "mail", "send", "Send a parcel"), doc(t, "mail", "read", "Read a parcel")},
		"one more":          {before[0], before[1], doc(t, "post", "burn", "Burn a letter")},
		"built anew":        numbered(t, 2*minPiece),
		"built anew around": append(numbered(t, 2*minPiece), before[1]),
	} {
		t.Run(name, func(t *testing.T) {
			x := New()
			defer x.Close()
			snapshot, err := x.Replace(t.Context(), before)
			if err != nil {
				t.Fatal(err)
			}
			want, err := snapshot.Search(t.Context(), query)
			if err != nil || len(want.Hits) != 2 {
				t.Fatal(want, err)
			}
			must.Get(x.Replace(t.Context(), after))(t)
			runtime.GC()   // what the change made superfluous may go, what the snapshot has may not
			x.write.Lock() // a change that goes on is not waited for
			got, err := snapshot.Search(t.Context(), query)
			x.write.Unlock()
			if err != nil || fmt.Sprint(names(got.Hits)) != fmt.Sprint(names(want.Hits)) || got.Hits[0].Score != want.Hits[0].Score {
				t.Errorf("after the change it answers %v, %v; want %v", got.Hits, err, want.Hits)
			}
			if snapshot.Len() != 2 {
				t.Errorf("it has %d documents", snapshot.Len())
			}
		})
	}
}

func TestASnapshotOfAClosedIndex(t *testing.T) {
	x := build(t, small(t)...)
	snapshot := must.Get(x.Replace(t.Context(), small(t)))(t)
	must.Do(t, x.Close())
	if _, err := snapshot.Search(t.Context(), Query{Text: "issue", Limit: 1}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := x.Replace(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// The table of names that a later snapshot made has not what an earlier one still finds.
func TestASnapshotHasItsOwnNames(t *testing.T) {
	x := build(t, doc(t, "mail", "send", "Send a letter"), doc(t, "mail", "read", "Read a letter"))
	before := x.snapshot()
	must.Do(t, x.Apply(t.Context(), nil, []string{"mail_read"}))
	if hits := search(t, x, Query{Text: "ea", Limit: 9}); len(hits) != 0 {
		t.Errorf("what is gone is found: %v", hits)
	}
	found, err := before.Search(t.Context(), Query{Text: "ea", Limit: 9})
	if err != nil || len(found.Hits) != 1 {
		t.Errorf("the snapshot before finds %v, %v", found.Hits, err)
	}
}
