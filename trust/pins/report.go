package pins

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/tool"
)

// Report is what is to be known of a held definition before it is approved.
type Report struct {
	Held
	From     *tool.ID // what it was called before, if it looks renamed
	Warnings []Warning
}

// What says what happened to it, in a few words.
func (r Report) What() string {
	text := "new"
	switch {
	case r.From != nil:
		text = "renamed from " + Visible(r.From.Name)
	case !r.New():
		text = "changed: " + r.fields()
	}
	if r.WasRejected() {
		text = "rejected; " + text
	}
	return text
}

// fields names the first fields that changed.
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

// Reports says of what is held what its owner should know. gone is what was approved and
// is not listed any more, and warnings are those of Warn. What has warnings comes first
// within a server.
func Reports(held, gone []Held, warnings map[tool.ID][]Warning) []Report {
	from := Renames(held, gone)
	reports := make([]Report, len(held))
	for i, h := range held {
		reports[i] = Report{Held: h, Warnings: warnings[h.ID]}
		if was, renamed := from[h.ID]; renamed {
			reports[i].From = &was
		}
	}
	slices.SortStableFunc(reports, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.ID.Server, b.ID.Server), cmp.Compare(len(b.Warnings), len(a.Warnings)))
	})
	return reports
}

// MarshalJSON is the report as commands and the API write it.
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
		Hash      string    `json:"hash"` // to be sent back with a decision
		Canonical string    `json:"canonical_hash"`
		New       bool      `json:"new"`
		Rejected  bool      `json:"rejected"`
		Renamed   string    `json:"renamed_from,omitempty"`
		Warnings  []warning `json:"warnings,omitempty"`
		Changes   []change  `json:"changes"`
	}{
		ID: r.ID.String(), Server: r.ID.Server, Kind: r.ID.Kind.String(), Name: r.ID.Name, Hash: r.Hash, Canonical: r.Mark(),
		New: r.New(), Rejected: r.WasRejected(), Changes: []change{},
	}
	if r.From != nil {
		out.Renamed = r.From.Name
	}
	for _, w := range r.Warnings {
		out.Warnings = append(out.Warnings, warning(w))
	}
	for _, c := range r.Changes() {
		out.Changes = append(out.Changes, change(c))
	}
	return json.Marshal(out)
}
