package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
	"toolfinch/view"
)

// decoder turns the tree into a Config. It has more than 30 methods: each block of the file has one that reads it.
type decoder struct {
	scalars
	serverNames
	from    source
	tree    *document.Node // the whole file; nil before parsing
	isJSON  bool
	foreign bool              // another program's file: unknown keys are warnings
	origins map[string]origin // by key of the top level
	views   []viewOrigin      // in the order of Config.Views
	taken   claims            // names of tools under servers, or in the current view
	expose  view.Exposure     // of views without exposure_mode
	asked   []origin          // names of servers, checked once all servers are known
	absent  []*Error          // unknown servers in the current view
}

// report collects what is wrong with a configuration.
type report struct {
	file     string // its name in errors
	errors   []*Error
	warnings []*Error
}

// scalars reads single values: it replaces variables and makes paths absolute.
type scalars struct {
	report
	env     lookup
	dir     string            // folder of the file: relative paths of the file start here
	read    map[string]string // variables and secrets that were used, by name
	unnoted lookup            // env without a note in read, for what does not change the configuration
	workDir string            // relative paths of environment and flags start here
	home    string
	lenient bool     // in a disabled server: texts with variables are not checked
	later   bool     // unset variables are no error: another machine may set them
	met     []string // set variables in texts of the file
	unset   []string // unset variables without a default
	secrets *secrets // values of variables with names of secrets
	stored  *stored  // secrets in the vault; nil: they are neither read nor checked
}

// serverNames are the names of all servers.
type serverNames struct {
	known []string        // in file order
	off   map[string]bool // the disabled ones
}

// origin is the place of a value, and its name in messages.
type origin struct {
	node  *document.Node
	label string
	ok    bool // it was read without errors
}

func (r *report) at(n *document.Node, message, hint string) *Error {
	if n.Outside() {
		return &Error{Message: message, Hint: hint}
	}
	return &Error{File: r.file, Line: n.Line, Column: n.Column, Message: message, Hint: hint}
}

func (r *report) fail(n *document.Node, message, hint string) {
	if n.Kind == document.Broken { // reported already
		return
	}
	r.errors = append(r.errors, r.at(n, message, hint))
}

func (r *report) warn(n *document.Node, message, hint string) {
	r.warnings = append(r.warnings, r.at(n, message, hint))
}

func (r *report) mustBe(n *document.Node, label, want, hint string) {
	r.fail(n, label+" must be "+want+", not "+asWritten(n), hint)
}

// asWritten is a value for messages, with variables as they are: a value of a variable may
// be a secret.
func asWritten(n *document.Node) string {
	switch n.Kind {
	case document.Text:
		const most = 40
		s := n.Text
		if utf8.RuneCountInString(s) > most {
			s = string([]rune(s)[:most]) + "..."
		}
		if hasVariables(n) {
			return "the value of " + s
		}
		return strconv.Quote(s)
	case document.Number, document.Bool:
		return n.Text
	default:
		return string(n.Kind)
	}
}

// require reports ok, and adds an error if it is false.
func (r *report) require(ok bool, n *document.Node, label, want, hint string) bool {
	if !ok {
		r.mustBe(n, label, want, hint)
	}
	return ok
}

// isMapping reports whether n is a mapping, and adds an error if not.
func (r *report) isMapping(n *document.Node, label, of, hint string) bool {
	if n.Kind != document.Mapping {
		r.fail(n, label+" must be a mapping of "+of+", not "+string(n.Kind), hint)
	}
	return n.Kind == document.Mapping
}

// unique returns the pairs without repeated keys, and reports repetitions.
func (r *report) unique(n *document.Node, noun string) []document.Pair {
	first := make(map[string]*document.Node, len(n.Pairs))
	kept := make([]document.Pair, 0, len(n.Pairs))
	for _, p := range n.Pairs {
		if known := first[p.Key.Text]; known != nil {
			r.fail(p.Key, fmt.Sprintf("duplicate %s %q", noun, shorten(p.Key.Text)), fmt.Sprintf("first on line %d", known.Line))
			continue
		}
		first[p.Key.Text] = p.Key
		kept = append(kept, p)
	}
	return kept
}

// text sets to from a text with its variables replaced, and reports whether it did.
func (s *scalars) text(n *document.Node, label string, to *string) bool {
	if n.Kind != document.Text {
		hint := ""
		if n.Kind == document.Number || n.Kind == document.Bool {
			hint = "put it in quotes"
		}
		s.fail(n, label+" must be text, not "+string(n.Kind), hint)
		return false
	}
	return s.expand(n, label, to)
}

func (s *scalars) expand(n *document.Node, label string, to *string) bool {
	if n.Outside() { // the shell has replaced variables
		*to = n.Text
		return true
	}
	if s.lenient && hasVariables(n) {
		return false
	}
	var lost []error // a default replaces a missing secret, not an unreadable one
	text, err := expand(n.Text, func(name string) (string, bool) {
		value, ok := s.env(name)
		if s.stored.lost(name) {
			lost = append(lost, &substitutionError{unset: name})
		}
		if ok && !strings.HasPrefix(name, secretPrefix) {
			s.met = append(s.met, name)
		}
		return value, ok
	})
	err = errors.Join(append(lost, err)...)
	for _, e := range substitutionErrors(err) {
		switch isSecret := strings.HasPrefix(e.unset, secretPrefix); {
		case isSecret && s.stored == nil:
			continue
		case isSecret:
			e = s.stored.explain(e)
		case e.unset != "":
			s.unset = append(s.unset, e.unset)
			if s.later {
				continue
			}
		}
		s.fail(n, label+": "+e.message, e.hint)
	}
	if err == nil && strings.ContainsRune(text, 0) {
		s.fail(n, label+" has a NUL character", "")
		return false
	}
	if err == nil {
		*to = text
		s.secrets.note(n, text, s.env)
	}
	return err == nil
}

// plain reads the text of a number or truth value. Quoted text is accepted only as one
// variable, because variables are always text.
func (s *scalars) plain(n *document.Node, label, want string, of document.Kind, to *string) bool {
	switch {
	case n.Kind == of:
		*to = n.Text
		return true
	case n.Kind == document.Text && (n.Outside() || isVariable(n.Text)):
		return s.expand(n, label, to)
	}
	hint := ""
	if n.Kind == document.Text && (of == document.Number && isDigits(n.Text) || of == document.Bool && isBool(n.Text)) {
		hint = "remove the quotes"
	}
	s.mustBe(n, label, want, hint)
	return false
}

// quantity reads a number, or text of a number with its unit.
func (s *scalars) quantity(n *document.Node, label, want, hint string) (text string, ok bool) {
	switch n.Kind {
	case document.Number:
		return n.Text, true
	case document.Text:
		ok = s.expand(n, label, &text)
		return text, ok
	}
	s.mustBe(n, label, want, hint)
	return "", false
}

// nearHint names the valid word nearest to text. A value of a variable gets no hint.
func (s *scalars) nearHint(n *document.Node, text string, valid []string) string {
	if hasVariables(n) {
		return ""
	}
	return nearHint(text, valid)
}

// absolute makes a path absolute. A path of the file starts at its folder, any other at the
// working directory.
func (s *scalars) absolute(n *document.Node, label string, path *string) bool {
	full, err := tilde(*path, s.home)
	if err != nil {
		s.fail(n, label+": "+err.Error(), "write the path in full")
		return false
	}
	from := s.dir
	if n.Outside() {
		from = s.workDir
	}
	*path = within(from, full)
	return true
}

// claims are exposed names with the tools that have them. A view's own tool has no node.
type claims map[string]origin

// viewOrigin is the place of a view, with the names that it gives.
type viewOrigin struct {
	key, value *document.Node
	label      string
	taken      claims
	absent     []*Error // why the view is left out; nil when it is not
}

// newDecoder returns the decoder of a file. Relative paths in flags start at workDir.
func newDecoder(file source, workDir string, env lookup) *decoder {
	return &decoder{
		scalars: scalars{
			report:  report{file: file.shown},
			env:     env,
			dir:     filepath.Dir(file.path),
			workDir: workDir,
			read:    map[string]string{},
			unnoted: env,
			home:    homeDir(runtime.GOOS, env),
			secrets: new(secrets),
		},
		from:        file,
		serverNames: serverNames{off: make(map[string]bool)},
		origins:     make(map[string]origin),
		taken:       make(claims),
	}
}

// source is a file, with the setting that names it.
type source struct {
	path  string // absolute
	shown string // path in messages
	by    string // "--config", "MCPPROXY_CONFIG", or "" for a found file
	found bool   // in the working folder, where anybody may have put it
}

func placeOf(n *document.Node) view.Place { return view.Place{Line: n.Line, Column: n.Column} }

// maxValue bounds a value as JSON, in bytes: aliases of aliases grow without end.
const maxValue = 1 << 20

// value returns a value as JSON with variables replaced. Numbers and order of keys stay.
func (s *scalars) value(n *document.Node, label string) (json.RawMessage, bool) {
	var b bytes.Buffer
	if !s.appendValue(&b, n, label, 0) {
		return nil, false
	}
	if b.Len() > maxValue {
		s.fail(n, fmt.Sprintf("%s is larger than %d MiB", label, maxValue>>20), "")
		return nil, false
	}
	return b.Bytes(), true
}

func (s *scalars) appendValue(b *bytes.Buffer, n *document.Node, label string, depth int) bool {
	if depth > document.MaxDepth {
		s.fail(n, fmt.Sprintf("a value nested deeper than %d levels", document.MaxDepth), "")
		return false
	}
	if b.Len() > maxValue {
		return true // value reports it
	}
	ok := true
	switch n.Kind {
	case document.Broken:
		return false
	case document.Null:
		b.WriteString("null")
	case document.Bool:
		b.WriteString(n.Text)
	case document.Number:
		number, legal := document.JSONNumber(n.Text)
		if !legal {
			s.mustBe(n, label, "a number that JSON has", "put it in quotes for text")
			return false
		}
		b.WriteString(number)
	case document.Text:
		var text string
		if !s.expand(n, label, &text) {
			return false
		}
		b.Write(rawjson.Quote(text))
	case document.List:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			ok = s.appendValue(b, item, fmt.Sprintf("%s[%d]", label, i), depth+1) && ok
		}
		b.WriteByte(']')
	case document.Mapping:
		b.WriteByte('{')
		for i, p := range s.unique(n, "key") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(rawjson.Quote(p.Key.Text))
			b.WriteByte(':')
			ok = s.appendValue(b, p.Value, label+"."+shorten(p.Key.Text), depth+1) && ok
		}
		b.WriteByte('}')
	}
	return ok
}
