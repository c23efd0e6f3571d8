package configs

import (
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"toolfinch/internal/document"
	"unicode"
)

// str is a text that check accepts.
type str struct {
	check func(d *decoder, n *document.Node, label string, text *string) bool // may change the text; nil accepts any
	mask  func(s *secrets, text string) string                                // default: secrets.known
	word  bool                                                                // accepts a number or truth value as text
	empty bool                                                                // printed also when empty
	list  string                                                              // hint for a list
}

func (k str) read(d *decoder, n *document.Node, label string, to *string) bool {
	var text string
	switch {
	case k.list != "" && n.Kind == document.List:
		d.fail(n, label+" must be text, not a list", k.list)
		return false
	case k.word && (n.Kind == document.Number || n.Kind == document.Bool):
		text = n.Text
	case !d.text(n, label, &text):
		return false
	}
	if k.check != nil && !k.check(d, n, label, &text) {
		return false
	}
	*to = text
	return true
}

func (k str) show(s *secrets, text string) *document.Node {
	switch {
	case text == "" && !k.empty:
		return nil
	case k.mask != nil:
		return document.NewText(k.mask(s, text))
	}
	return document.NewText(s.known(text))
}

func (k str) schema() schema {
	if k.word {
		return anyWord
	}
	return anyText
}

// prose is text for readers.
var prose = str{mask: (*secrets).prose}

// optional is a text that may be absent.
type optional struct{ str }

func (k optional) read(d *decoder, n *document.Node, label string, to **string) bool {
	var text string
	ok := k.str.read(d, n, label, &text)
	if ok {
		*to = &text
	}
	return ok
}

func (k optional) show(s *secrets, text *string) *document.Node {
	if text == nil {
		return nil
	}
	k.str.empty = true
	return k.str.show(s, *text)
}

// notEmpty refuses blank text.
func notEmpty(d *decoder, n *document.Node, label string, text *string) bool {
	if strings.TrimSpace(*text) != "" {
		return true
	}
	d.fail(n, label+" is empty", "remove it for the default")
	return false
}

// number is a whole number.
type number[N int | uint64] struct{ low, high N }

func (k number[N]) read(d *decoder, n *document.Node, label string, to *N) bool {
	want := fmt.Sprintf("a whole number from %d to %d", k.low, k.high)
	var text string
	if !d.plain(n, label, want, document.Number, &text) {
		return false
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil || i < int64(k.low) || i > int64(k.high) {
		d.mustBe(n, label, want, "")
		return false
	}
	*to = N(i)
	return true
}

func (k number[N]) show(_ *secrets, i N) *document.Node {
	if i < k.low { // not set
		return nil
	}
	return &document.Node{Kind: document.Number, Text: fmt.Sprint(i)}
}

func (k number[N]) schema() schema {
	return anyOf(schema{"type": "integer", "minimum": k.low, "maximum": k.high}, oneVariable)
}

// boolean is true or false.
type boolean struct {
	not  bool // the field has the opposite value
	only bool // printed only when the field is true
}

func (k boolean) read(d *decoder, n *document.Node, label string, to *bool) bool {
	var text string
	if !d.plain(n, label, string(document.Bool), document.Bool, &text) {
		return false
	}
	if !isBool(text) {
		d.mustBe(n, label, string(document.Bool), "")
		return false
	}
	*to = (text == "true") != k.not
	return true
}

func (k boolean) show(_ *secrets, v bool) *document.Node {
	if k.only && !v {
		return nil
	}
	return document.NewBool(v != k.not)
}

func (boolean) schema() schema { return anyOf(schema{"type": "boolean"}, oneVariable) }

// maxDuration bounds every wait.
const maxDuration = 24 * time.Hour

// duration is a duration such as 30s, or a number of seconds.
type duration struct {
	low, high time.Duration // default: above 0, up to maxDuration
	like      string        // for the hint; default "30s", "2m"
}

func (k duration) bounds() (low, high time.Duration, want string) {
	if k.low == 0 {
		return 1, maxDuration, "a duration above 0 and up to 24h"
	}
	return k.low, k.high, "a duration from " + shortDuration(k.low) + " to " + shortDuration(k.high)
}

func (k duration) read(d *decoder, n *document.Node, label string, to *time.Duration) bool {
	low, high, want := k.bounds()
	hint := `like "30s", "2m", or a number of seconds`
	if k.like != "" {
		hint = "like " + strconv.Quote(k.like) + ", or a number of seconds"
	}
	text, ok := d.quantity(n, label, want, hint)
	if !ok {
		return false
	}
	duration, err := time.ParseDuration(text)
	if n.Kind == document.Number || err != nil && isVariable(n.Text) {
		duration, err = parseSeconds(text)
	}
	if err != nil || duration < low || duration > high {
		d.mustBe(n, label, want, hint)
		return false
	}
	*to = duration
	return true
}

// show prints a duration without quotes.
func (k duration) show(_ *secrets, v time.Duration) *document.Node {
	if v == 0 {
		return nil
	}
	return &document.Node{Kind: document.Number, Text: shortDuration(v)}
}

func (k duration) schema() schema {
	low, high, _ := k.bounds()
	seconds := schema{"type": "number", "minimum": low.Seconds(), "maximum": high.Seconds()}
	return anyOf(seconds, schema{"type": "string", "pattern": `^\+?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+$`}, containsVariable)
}

// parseSeconds reads a number of seconds, and returns 0 for more than maxDuration.
func parseSeconds(s string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(s, 64)
	if err != nil || !(seconds <= maxDuration.Seconds()) {
		return 0, err
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// shortDuration writes 2m0s as 2m.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// size is a number of bytes, 1 to maxResult: 20000, "20kB", "1.5 MiB".
type size struct{}

// maxResult bounds sizes, in bytes.
const maxResult = 100_000_000

var sizeForm = regexp.MustCompile(`^([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([a-zA-Z]*)$`)

var sizeUnits = map[string]float64{
	"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "kib": 1 << 10, "mib": 1 << 20,
}

func (size) read(d *decoder, n *document.Node, label string, to *int) bool {
	const want, hint = "a size from 1 byte to 100MB", `like "20kB", "1MB", or a number of bytes`
	text, ok := d.quantity(n, label, want, hint)
	if !ok {
		return false
	}
	if parts := sizeForm.FindStringSubmatch(text); parts != nil {
		unit, known := sizeUnits[strings.ToLower(parts[2])]
		number, err := strconv.ParseFloat(parts[1], 64)
		if bytes := number * unit; known && err == nil && bytes >= 1 && bytes <= maxResult {
			*to = int(bytes)
			return true
		}
	}
	d.mustBe(n, label, want, hint)
	return false
}

func (size) show(s *secrets, bytes int) *document.Node {
	return number[int]{1, maxResult}.show(s, bytes)
}

func (size) schema() schema {
	return anyOf(schema{"type": "number", "minimum": 1, "maximum": maxResult}, schema{"type": "string", "pattern": sizeForm.String()}, containsVariable)
}

// choice is a word of a list, in any case.
type choice[T ~string] struct {
	words []T
	other map[string]T // synonyms of words, which messages do not list
}

func (k choice[T]) read(d *decoder, n *document.Node, label string, to *T) bool {
	var text string
	if !d.text(n, label, &text) {
		return false
	}
	valid := k.names()
	word, ok := matchFold(text, valid)
	if !ok {
		d.mustBe(n, label, oneOf(valid[:len(k.words)]), d.nearHint(n, text, valid))
		return false
	}
	*to = T(word)
	if known, ok := k.other[word]; ok {
		*to = known
	}
	return true
}

// names returns the words, then the synonyms.
func (k choice[T]) names() []string {
	var names, other []string
	for _, word := range k.words {
		names = append(names, string(word))
	}
	for word := range k.other {
		other = append(other, word)
	}
	slices.Sort(other)
	return append(names, other...)
}

func (k choice[T]) show(s *secrets, v T) *document.Node { return str{}.show(s, string(v)) }

// schema lists the words for completion, and accepts any case.
func (k choice[T]) schema() schema {
	var pattern strings.Builder
	for i, name := range k.names() {
		if i > 0 {
			pattern.WriteByte('|')
		}
		for _, r := range name {
			if upper, lower := unicode.ToUpper(r), unicode.ToLower(r); upper != lower {
				fmt.Fprintf(&pattern, "[%c%c]", upper, lower)
			} else {
				pattern.WriteString(regexp.QuoteMeta(string(r)))
			}
		}
	}
	return anyOf(schema{"enum": k.words}, schema{"type": "string", "pattern": "^(" + pattern.String() + ")$"}, containsVariable)
}

// onError says whether a failure is ignored.
type onError struct{ on string } // the word that sets the field

var onErrors = choice[string]{words: []string{"fail", "continue"}}

func (k onError) read(d *decoder, n *document.Node, label string, to *bool) bool {
	var word string
	ok := onErrors.read(d, n, label, &word)
	if ok {
		*to = word == k.on
	}
	return ok
}

func (k onError) show(_ *secrets, v bool) *document.Node {
	if v == (k.on == "fail") {
		return document.NewText("fail")
	}
	return document.NewText("continue")
}

func (onError) schema() schema { return onErrors.schema() }

// logLevel is a level of the log.
type logLevel struct{}

var logLevels = choice[string]{words: []string{"debug", "info", "warn", "error"}}

func (logLevel) read(d *decoder, n *document.Node, label string, to *slog.Level) bool {
	var level string
	return logLevels.read(d, n, label, &level) && to.UnmarshalText([]byte(level)) == nil
}

func (logLevel) show(_ *secrets, level slog.Level) *document.Node {
	return document.NewText(strings.ToLower(level.String()))
}

func (logLevel) schema() schema { return logLevels.schema() }

func glob(d *decoder, n *document.Node, label string, text *string) bool {
	if _, err := path.Match(*text, ""); err != nil || *text == "" {
		d.fail(n, label+" is not a valid glob", "* and ? match anything, [a-z] a range, a backslash the character after it")
		return false
	}
	return true
}

// hide masks any text.
func hide(*secrets, string) string { return mask }

// hidden is a text that is always secret.
var hidden = str{check: notEmpty, word: true, mask: hide}
