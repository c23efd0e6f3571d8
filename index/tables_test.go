package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The lines that contain a text are those that a look at each name finds.
func TestNamesThatContain(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("abc"[random.IntN(3)])
		}
		return b.String()
	}
	var docs []*entry
	for range 60 {
		docs = append(docs, &entry{Document: doc(t, letters(1+random.IntN(3)), letters(1+random.IntN(6)), "Says something.")})
	}
	docs[7] = nil
	names := (&piece{docs: docs, tables: newTables()}).names()
	for range 300 {
		text := letters(1 + random.IntN(5))
		var got, want []string
		names.containing(text, func(doc, length int) { got = append(got, fmt.Sprint(doc, " ", length)) })
		for number, e := range docs {
			if e == nil {
				continue
			}
			for _, name := range squeezedNames(e.Document) {
				if strings.Contains(name.term, text) {
					want = append(want, fmt.Sprint(number, " ", len(name.term)))
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q is in %v, want %v", text, got, want)
		}
	}
}
