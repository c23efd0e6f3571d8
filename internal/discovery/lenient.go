package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// ErrForm is the error of an answer that is no JSON. It repeats nothing of the answer, which may contain secrets.
var ErrForm = errors.New("it answers no JSON of the expected form")

// Lenient decodes a JSON object. A member of an unexpected type counts as absent.
func Lenient(body []byte, to any) error {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	err := json.Unmarshal(body, to)
	if _, member := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !member || len(body) == 0 || body[0] != '{' {
		return ErrForm
	}
	return nil
}

// Text is a string or a number in the answer of an authorization server.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(raw []byte) error {
	var text string
	var number json.Number
	switch {
	case json.Unmarshal(raw, &text) == nil:
		*t = Text(text)
	case json.Unmarshal(raw, &number) == nil:
		*t = Text(number)
	}
	return nil
}

// Words is a list of words, or a text with blanks or commas between them.
type Words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *Words) UnmarshalJSON(raw []byte) error {
	var all []Text
	if json.Unmarshal(raw, &all) != nil {
		all = make([]Text, 1)
		_ = all[0].UnmarshalJSON(raw) // never fails
	}
	*w = nil
	for _, one := range all {
		*w = append(*w, strings.FieldsFunc(string(one), func(r rune) bool { return r == ' ' || r == ',' })...)
	}
	return nil
}

// Seconds is a number of seconds, or a text with one. It is 0 for anything else.
type Seconds int64

// UnmarshalJSON implements json.Unmarshaler.
func (s *Seconds) UnmarshalJSON(raw []byte) error {
	var text Text
	_ = text.UnmarshalJSON(raw) // never fails
	n, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if *s = 0; err == nil && n > 0 {
		*s = Seconds(min(n, maxSeconds))
	}
	return nil
}

// maxSeconds fits into a time.Duration.
const maxSeconds = 9e9
