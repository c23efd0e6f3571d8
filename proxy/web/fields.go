package web

import (
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool/args"
)

func (q *request) fields(known ...args.Arg) error {
	return args.ReadFields(q.Method+" "+rawjson.Clip(q.URL.Path, maxClipped), q.sent, known...)
}

// number reads a number from the query; without is the default.
func (q *request) number(name string, without, least, most int) (int, error) {
	if !q.values.Has(name) {
		return without, nil
	}
	n := without
	err := args.Int(name, &n, least, most).Read(rawjson.Quote(q.values.Get(name)))
	return n, err
}

// tags returns the tags of the query, which may be repeated or separated by commas.
func (q *request) tags() []string {
	return args.Trimmed(strings.Split(strings.Join(q.values["tags"], ","), ","))
}
