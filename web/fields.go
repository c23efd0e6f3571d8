package web

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"toolfinch/rawjson"
)

// field is a member that a body may have, and what takes its value; that says
// "must be ..." of a value it cannot take.
type field struct {
	name string
	take func(raw json.RawMessage) error
}

// fields gives the members of the body to those who take them. null is as if the
// member were not there.
func (q *request) fields(known ...field) error {
	var names, seen []string
	for _, f := range known {
		names = append(names, f.name)
	}
	for name, raw := range rawjson.Members(q.sent) {
		i := slices.Index(names, name)
		switch {
		case i < 0:
			return unknownName("field", name, names)
		case slices.Contains(seen, name):
			return badRequest("%s is given twice", name)
		}
		seen = append(seen, name)
		if string(raw) == "null" {
			continue
		}
		if err := known[i].take(raw); err != nil {
			return err
		}
	}
	return nil
}

func textField(name string, to *string) field {
	return field{name, func(raw json.RawMessage) error {
		if json.Unmarshal(raw, to) != nil {
			return badRequest("%s must be text", name)
		}
		return nil
	}}
}

func textsField(name string, to *[]string) field {
	return field{name, func(raw json.RawMessage) error {
		if raw[0] != '[' {
			return badRequest("%s must be an array of texts", name)
		}
		*to = []string{}
		for element := range rawjson.Elements(raw) {
			var text string
			if string(element) == "null" || json.Unmarshal(element, &text) != nil {
				return badRequest("%s must be an array of texts", name)
			}
			*to = append(*to, text)
		}
		return nil
	}}
}

func numberField(name string, to *int, least, most int) field {
	return field{name, func(raw json.RawMessage) error {
		var number float64
		if json.Unmarshal(raw, &number) != nil || number != math.Trunc(number) || number < float64(least) || number > float64(most) {
			return notInRange(name, string(raw), least, most)
		}
		*to = int(number)
		return nil
	}}
}

func rawField(name string, to *json.RawMessage) field {
	return field{name, func(raw json.RawMessage) error { *to = raw; return nil }}
}

func notInRange(name, value string, least, most int) error {
	return badRequest("%s must be a whole number from %d to %d, not %s", name, least, most, clip(value))
}

// number is a query parameter that is a number; without stands for one that is
// not given.
func (q *request) number(name string, without, least, most int) (int, error) {
	if !q.values.Has(name) {
		return without, nil
	}
	n, err := strconv.Atoi(q.values.Get(name))
	if err != nil || n < least || n > most {
		return 0, notInRange(name, strconv.Quote(q.values.Get(name)), least, most)
	}
	return n, nil
}

// tags are those of the query, which are repeated or stand between commas.
func (q *request) tags() []string {
	return trimmed(strings.Split(strings.Join(q.values["tags"], ","), ","))
}

// trimmed are texts without the space around them, and without empty ones.
func trimmed(texts []string) []string {
	var out []string
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, text)
		}
	}
	return out
}
