package index

import "testing"

// The score of a deprecated tool is halved where it is above zero: half of what speaks against it would lift it.
func TestWhatSpeaksAgainstADeprecatedToolIsNotHalved(t *testing.T) {
	docs := append(small(t), docOf(t, "files", `{"name":"scan","description":"DEPRECATED: Use walk instead."}`, ""))
	x := build(t, docs...)
	vectors := map[string][]float32{}
	for _, d := range docs {
		vectors[d.Name] = meaning(Text(d))
	}
	query := meant("scan")
	against := make([]float32, len(query[0]))
	for i, v := range query[0] {
		against[i] = -v
	}
	vectors["files_scan"] = against
	putVectors(t, x, vectors)
	hits := hybrid(t, x, Query{Text: "scan", Vectors: query, Limit: 1, Explain: true}) // it is found by its name alone
	if hits[0].Name != "files_scan" || hits[0].Why.Words+hits[0].Why.Vectors >= 0 {
		t.Fatalf("found %s by %+v", hits[0].Name, *hits[0].Why)
	}
	checkExplained(t, "scan", hits[0])
	if lost := hits[0].Why.Deprecated; lost != 0 {
		t.Errorf("it loses %v by its age", lost)
	}
}
