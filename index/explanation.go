package index

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Explanation says what a hit's score is made of: the sum of Words, Vectors, Prior, Exact, Coverage, Twins,
// Deprecated and Unwanted.
type Explanation struct {
	// Words is the score by words: BM25F of the query, and of its clauses.
	Words float64
	// Fields divides Words among the texts of the definition: "name", "title", "uri", "server", "description",
	// "server description", "parameters", "parameter descriptions".
	Fields map[string]float64
	// Terms divides Words among the found stems of the query, and the concepts ("~delete") found by another word.
	Terms map[string]float64

	// Vectors is the weighted similarity by Query and Clause.
	Vectors float64
	Query   float64 // cosine with the whole query
	Clause  float64 // cosine with the clause most similar to the tool
	// Estimated says that the tool has no vector yet: its similarity is estimated from its words.
	Estimated bool

	Prior    float64 // learned from use
	Exact    float64 // because the query is the tool's name
	Coverage float64 // for clauses that higher hits serve less
	Twins    float64 // at most 0: for higher hits that are nearly the same tool
	// Deprecated is at most 0: a deprecated tool loses half its score.
	Deprecated float64
	// Unwanted is at most 0: a tool whose name destroys, or changes something, loses a little, unless the query has
	// such a verb.
	Unwanted float64
}

// Part is a part of a score, with its reason. A part without a name details the previous one.
type Part struct {
	Name   string  `json:"name,omitempty"`
	Value  float64 `json:"value,omitempty"`
	Reason string  `json:"reason,omitempty"`
}

// partWords names the part that Terms divides.
const partWords = "words"

// Parts returns the non-zero parts of the score; in a hybrid search, always vectors too.
func (e *Explanation) Parts(hybrid bool) []Part {
	all := []Part{{partWords, e.Words, "by field: " + shares(e.Fields)}, {Reason: "by word:  " + shares(e.Terms)}}
	if hybrid {
		how := fmt.Sprintf("%d × (%.1f × cosine with the query %.3f + %.1f × that with its nearest clause %.3f)", weightVectors, 1-weightClause, e.Query, weightClause, e.Clause)
		if e.Estimated {
			how = "guessed: not embedded yet"
		}
		all = append(all, Part{"vectors", e.Vectors, how})
	}
	for _, one := range []Part{
		{"name", e.Exact, "the query is its name"},
		{"coverage", e.Coverage, "serves clauses that the hits above serve less"},
		{"twins", e.Twins, "hits above are nearly the same tool"},
		{"old", e.Deprecated, "it says that it is deprecated"},
		{"verb", e.Unwanted, "it changes or destroys, the query does not"},
		{"use", e.Prior, "was called after similar queries"},
	} {
		if one.Value != 0 {
			all = append(all, one)
		}
	}
	return all
}

// shares lists the shares of a score, the largest first.
func shares(parts map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(parts[b], parts[a]), cmp.Compare(a, b))
	})
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fmt.Sprintf("%s %.2f", name, parts[name])
	}
	return cmp.Or(strings.Join(out, ", "), "-")
}
