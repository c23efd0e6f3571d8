package pins

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Report is a held definition for the owner who decides about it.
type Report struct {
	Held
	Warnings []Warning
}

// What describes the change in a few words.
func (r Report) What() string {
	text := "new"
	if !r.New() {
		text = "changed: " + r.fields()
	}
	if r.WasRejected() {
		text = "rejected; " + text
	}
	return text
}

func (r Report) fields() string {
	const shown = 3
	var names []string
	for _, change := range r.Changes() {
		names = append(names, change.Field)
	}
	if len(names) > shown {
		names = append(names[:shown], "...")
	}
	return strings.Join(names, ", ")
}

// Reports returns a report of each held definition, by server. Within a server, reports with warnings
// come first.
func Reports(held []Held) []Report {
	reports := make([]Report, len(held))
	for i, h := range held {
		reports[i] = Report{Held: h, Warnings: Warn(h.ID.Kind, h.Raw)}
	}
	slices.SortStableFunc(reports, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.ID.Server, b.ID.Server), cmp.Compare(len(b.Warnings), len(a.Warnings)))
	})
	return reports
}

// MarshalJSON encodes the report for commands and the API.
func (r Report) MarshalJSON() ([]byte, error) {
	type change struct {
		Field  string          `json:"field"`
		Before json.RawMessage `json:"before,omitempty"`
		After  json.RawMessage `json:"after,omitempty"`
	}
	type warning struct {
		Kind WarningKind `json:"kind"`
		Text string      `json:"text"`
	}
	out := struct {
		ID        string    `json:"id"`
		Server    string    `json:"server"`
		Kind      string    `json:"kind"`
		Name      string    `json:"name"`
		Hash      string    `json:"hash"` // names the definition in a decision
		Canonical string    `json:"canonical_hash"`
		New       bool      `json:"new"`
		Rejected  bool      `json:"rejected"`
		Warnings  []warning `json:"warnings,omitempty"`
		Changes   []change  `json:"changes"`
	}{
		ID: r.ID.String(), Server: r.ID.Server, Kind: r.ID.Kind.String(), Name: r.ID.Name, Hash: r.Hash, Canonical: r.Mark(),
		New: r.New(), Rejected: r.WasRejected(), Changes: []change{},
	}
	for _, w := range r.Warnings {
		out.Warnings = append(out.Warnings, warning(w))
	}
	for _, c := range r.Changes() {
		out.Changes = append(out.Changes, change(c))
	}
	return json.Marshal(out)
}
