package configs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"toolfinch/configs/document"
	"toolfinch/view"
)

// decoder turns the tree into a Config.
type decoder struct {
	scalars
	serverNames
	from    source
	tree    *document.Node // of the whole file, nil before it is parsed
	isJSON  bool
	foreign bool              // it is another program's: a key that is not known is a warning
	origins map[string]origin // of the values of the top level, by key
	views   []viewOrigin      // of Config.Views, in their order
	taken   claims            // names that tools are given under servers, or in the view that is read
	expose  view.Exposure     // of views that have none of their own
	asked   []origin          // names of servers that were met before all were known
	absent  []*Error          // servers that the view which is read names, and that there are not
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
	dir     string // folder of the file: relative paths of the file start here
	workDir string // relative paths of environment and flags start here
	home    string
	lenient bool     // in a disabled server: what has variables is not looked at
	later   bool     // variables that are not set are no mistake: they may be where the file is used
	met     []string // variables that texts of the file use and that are set
	unset   []string // those that are not set and have no default
	secrets *secrets // what came from variables with telling names
	stored  *stored  // secrets in the vault; nil: they are not read, and no mistake
}

// serverNames are the names of all servers.
type serverNames struct {
	known []string        // in file order
	off   map[string]bool // the disabled ones
}

// origin is where a value came from, and what messages call it.
type origin struct {
	node  *document.Node
	label string
	ok    bool // it could be read
}

func (r *report) at(n *document.Node, message, hint string) *Error {
	if n.Outside() {
		return &Error{Message: message, Hint: hint}
	}
	return &Error{File: r.file, Line: n.Line, Column: n.Column, Message: message, Hint: hint}
}

func (r *report) fail(n *document.Node, message, hint string) {
	if n.Kind == document.Broken { // one error each
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

// asWritten is a value as messages show it. An expansion is never shown: it may be a
// secret.
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

// isMapping reports whether n is a mapping, and fails otherwise.
func (r *report) isMapping(n *document.Node, label, of, hint string) bool {
	if n.Kind != document.Mapping {
		r.fail(n, label+" must be a mapping of "+of+", not "+string(n.Kind), hint)
	}
	return n.Kind == document.Mapping
}

// unique returns the pairs without repeated keys, which it reports.
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

// serverBlocks are the keys that hold servers: ours, that of most clients, and
// that of VS Code.
var serverBlocks = []string{"mcp_servers", "mcpServers", "servers"}

func topKeys() []string { return append([]string{serverBlocks[0]}, top.names()...) }

// root reads the whole file into c.
func (d *decoder) root(root *document.Node, c *Config) {
	if root.Kind != document.Mapping {
		d.fail(root, "the file must be a mapping of keys to values, not "+string(root.Kind), emptyHint)
		return
	}
	d.foreign = d.isJSON && (root.Find("mcpServers") != nil || root.Find("servers") != nil)
	servers := make(map[string]*document.Node)
	var views *document.Node // read once the servers are known
	for _, p := range d.unique(root, "key") {
		name := p.Key.Text
		switch {
		case slices.Contains(serverBlocks, name):
			d.servers(p.Value, name, c, servers)
		case top.find(name) != nil && p.Value.Kind == document.Null: // left at its default
		case name == viewBlock:
			views = p.Value
		case top.find(name) != nil:
			d.setting(c, name, p.Value, name)
		case name == "mcp" && p.Value.Kind == document.Mapping:
			d.fail(p.Key, "this is the file of opencode", "toolfinch import FILE takes over the servers in it")
		case name == "$schema", name == "inputs", strings.HasPrefix(name, "x-"): // editors', and a place for anchors
		case d.foreign:
			d.warn(p.Key, fmt.Sprintf("key %q is not used", shorten(name)), nearHint(name, topKeys()))
		case slices.Contains(serverKeys.names(), name):
			d.fail(p.Key, fmt.Sprintf("unknown key %q", shorten(name)), "it belongs to a server under "+serverBlocks[0])
		default:
			d.fail(p.Key, fmt.Sprintf("unknown key %q", shorten(name)), didYouMean(name, topKeys()))
		}
	}
	if views != nil {
		d.expose = c.DefaultExposure
		d.setting(c, viewBlock, views, viewBlock)
	}
	if len(servers) == 0 && len(d.errors) == 0 {
		d.warn(root, "no servers are configured", emptyHint)
	}
}

// setting reads the value of a key of the top level.
func (d *decoder) setting(c *Config, name string, n *document.Node, label string) {
	ok := top.find(name).value.read(d, n, label, c)
	d.origins[name] = origin{n, label, ok}
}

// override sets a value from outside the file. An empty one counts as none, with
// few exceptions.
func (d *decoder) override(c *Config, name, label, value string) {
	switch k := top.find(name); {
	case k == nil:
		d.errors = append(d.errors, &Error{Message: "unknown setting " + label, Hint: didYouMean(name, topKeys())})
	case value != "" || k.empty:
		d.setting(c, name, document.NewText(value), label)
	}
}

// text reads text and replaces its variables. It reports whether it set to.
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
	if n.Outside() { // a shell has done so
		*to = n.Text
		return true
	}
	if s.lenient && hasVariables(n) {
		return false
	}
	var lost []error // a default is for what is not stored only
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

// plain reads the text of a number or truth value. Quoted text is neither,
// unless it is wholly one variable: those have no other form.
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

// quantity reads a number, or text that has one with its unit.
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

// nearHint names the valid word nearest to text, unless text came from a
// variable: its value is not hinted at.
func (s *scalars) nearHint(n *document.Node, text string, valid []string) string {
	if hasVariables(n) {
		return ""
	}
	return nearHint(text, valid)
}

// absolute makes a path absolute: seen from the folder of the file, or from the
// working directory when it comes from outside the file.
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

// shorten keeps a foreign key from filling a message.
func shorten(s string) string {
	const most = 64
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
