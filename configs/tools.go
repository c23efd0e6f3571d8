package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"toolfinch/configs/document"
	"toolfinch/view"
)

// reservedNames are the meta-tools: no tool is exposed under one of them.
var reservedNames = []string{
	"retrieve_tools", "call_tool", "call_tool_read", "call_tool_write", "call_tool_destructive",
	"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "list_provisioned",
	"read_output", "run_script",
}

var exposedName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// claims are the exposed names that were given so far, and where. A name without
// a node is that of one of the view's own tools.
type claims map[string]origin

// claim checks an exposed name and that no other tool has it. The name itself is
// not repeated: it may come from a variable.
func (d *decoder) claim(n *document.Node, label, name string) {
	if !d.checkExposed(n, label, name) {
		return
	}
	if first, taken := d.taken[name]; taken {
		d.fail(n, label+" is the name of another tool already", fmt.Sprintf("of the one on line %d", first.node.Line))
		return
	}
	d.taken[name] = origin{node: n, label: label}
}

func (r *report) failOwn(n *document.Node, label string) {
	r.fail(n, label+" is the name of one of toolfinch's own tools: "+asWritten(n), "choose another one")
}

func (r *report) checkExposed(n *document.Node, label, name string) bool {
	switch {
	case !exposedName.MatchString(name):
		r.mustBe(n, label, "1 to 64 letters, digits, _ and -", "clients and models accept no other names of tools")
		return false
	case slices.Contains(reservedNames, name):
		r.failOwn(n, label)
		return false
	}
	return true
}

// isGlob reports whether the name of a tool stands for several.
func isGlob(s string) bool { return strings.ContainsAny(s, `*?[\`) }

// overrides is a tools block: the tools of one server and what changes of them.
var overrides = named[view.Override]{
	noun: "tool", of: "tools to what changes of them", hint: "write {} for a tool as it is",
	item:  override{overrideKeys},
	fresh: func(p document.Pair) view.Override { return view.Override{Tool: p.Key.Text, At: placeOf(p.Key)} },
	name:  func(o *view.Override) string { return o.Tool },
	check: func(d *decoder, key *document.Node, label string) {
		switch _, err := path.Match(key.Text, ""); {
		case key.Text == "":
			d.fail(key, label+": a tool without a name", "")
		case err != nil:
			d.fail(key, fmt.Sprintf("%s: %q is no pattern", label, shorten(key.Text)), `* ? and [a-z] stand for characters, \ before them for themselves`)
		}
	},
}

// overrideKeys describes all keys of a tool within a tools block.
var overrideKeys = section[view.Override]{check: checkOverride, keys: keys{
	{
		name: "name", without: "server and tool",
		doc:   "what clients call it, exactly: 1 to 64 letters, digits, `_` and `-`. Not for patterns",
		value: in(func(o *view.Override) *string { return &o.Name }).is(str{}),
	},
	{
		name: "title", without: "the server's",
		doc:   "`{original}` stands for the server's",
		value: in(func(o *view.Override) **string { return &o.Title }).is(optional{prose}),
	},
	{
		name: "description", without: "the server's",
		doc:   "likewise",
		value: in(func(o *view.Override) **string { return &o.Description }).is(optional{prose}),
	},
	{
		name: "enabled", without: "`true`",
		doc:   "`false` leaves the tool out",
		value: in(func(o *view.Override) *bool { return &o.Disabled }).is(boolean{not: true, only: true}),
	},
	{
		name:  "parameters",
		doc:   "changes of its parameters, by the server's name",
		value: in(func(o *view.Override) *[]view.Parameter { return &o.Parameters }).is(parameters),
	},
	{
		name: "output_cache", without: "the server's",
		doc:   "keep large results, as under a server",
		value: in(func(o *view.Override) **view.OutputCache { return &o.Output }).is(outputCache),
	},
}}

// override is one tool of a tools block. Nothing is as good as {}.
type override struct{ section[view.Override] }

func (k override) read(d *decoder, n *document.Node, label string, o *view.Override) bool {
	switch n.Kind {
	case document.Null:
		return true
	case document.Mapping:
		return k.section.read(d, n, label, o)
	}
	d.fail(n, label+" must be a mapping, not "+string(n.Kind), "write {} for the tool as it is, {enabled: false} to leave it out")
	return false
}

// checkOverride looks at what several keys of a tool say together.
func checkOverride(d *decoder, n *document.Node, label string, o *view.Override) {
	renamed := make(map[string]*document.Node)
	for _, p := range o.Parameters {
		if p.Rename == "" {
			continue
		}
		rename := n.Find("parameters").Find(p.Name).Find("rename")
		if first := renamed[p.Rename]; first != nil {
			d.fail(rename, fmt.Sprintf("%s.parameters.%s.rename: two parameters get one name", label, shorten(p.Name)), fmt.Sprintf("the other one is on line %d", first.Line))
			continue
		}
		renamed[p.Rename] = rename
	}
	name := n.Given("name")
	switch {
	case name == nil || name.Kind != document.Text || d.lenient && hasVariables(name):
	case isGlob(o.Tool):
		d.fail(name, label+": a pattern of tools cannot have one name", "name a single tool")
	case o.Disabled: // nobody sees it
		d.checkExposed(name, label+".name", o.Name)
	case o.Name != "" || !hasVariables(name):
		d.claim(name, label+".name", o.Name)
	}
}

// parameterKeys describes all keys of a parameter of a tool.
var parameterKeys = section[view.Parameter]{check: checkParameter, keys: keys{
	{
		name:  "rename",
		doc:   "what clients call it",
		value: in(func(p *view.Parameter) *string { return &p.Rename }).is(str{check: notEmpty}),
	},
	{
		name:  "description",
		doc:   "`{original}` stands for the server's",
		value: in(func(p *view.Parameter) **string { return &p.Description }).is(optional{prose}),
	},
	{
		name: "default", null: true,
		doc:   "sent if the client sends nothing; any YAML",
		value: in(all[view.Parameter]).is(bound{func(p *view.Parameter) *[]byte { return &p.Default }}),
	},
	{
		name:  "hidden",
		doc:   "not shown; its `default` is sent, if any",
		value: in(func(p *view.Parameter) *bool { return &p.Hidden }).is(boolean{only: true}),
	},
	{
		name: "value", null: true,
		doc:   "always sent, and hidden; any YAML",
		value: in(all[view.Parameter]).is(bound{func(p *view.Parameter) *[]byte { return &p.Value }}),
	},
}}

// bound is any value that a parameter gets, kept as JSON.
type bound struct {
	at func(p *view.Parameter) *[]byte
}

func (k bound) read(d *decoder, n *document.Node, label string, p *view.Parameter) (ok bool) {
	*k.at(p), ok = d.value(n, label)
	return ok
}

func (k bound) show(s *secrets, p view.Parameter) *document.Node {
	return s.json(*k.at(&p), p.Name, ofData)
}

// parameters are those of a tool, by name.
var parameters = named[view.Parameter]{
	noun: "parameter", of: "parameters to what changes of them",
	item:  parameterKeys,
	fresh: func(p document.Pair) view.Parameter { return view.Parameter{Name: p.Key.Text, At: placeOf(p.Key)} },
	name:  func(p *view.Parameter) string { return p.Name },
}

// checkParameter looks at what several keys of a parameter say together.
func checkParameter(d *decoder, n *document.Node, label string, p *view.Parameter) {
	value, fallback := n.Find("value"), n.Find("default")
	hidden := p.Hidden || value != nil
	switch {
	case value != nil && fallback != nil:
		d.fail(fallback, label+" has both value and default", "value is always sent, default where the client sends nothing: keep one")
	case value != nil && n.Given("hidden") != nil && !p.Hidden && !d.lenient:
		d.fail(n.Find("hidden"), label+": what has a value is hidden", "remove hidden, or write default in place of value")
	}
	if rename := n.Given("rename"); rename != nil && hidden {
		d.fail(rename, label+" is hidden and renamed, but nobody sees the name", "remove one of the two")
	}
	if description := n.Given("description"); description != nil && hidden {
		d.warn(description, label+": the description is not used, the parameter is hidden", "")
	}
}

// outputCache says which results are kept. What is off has no minimum size.
var outputCache = outputCacheKind{onOff[view.OutputCache]{section: section[view.OutputCache]{keys: keys{
	{
		name:  "min_size",
		doc:   "bytes from which a result is kept",
		value: in(func(o *view.OutputCache) *int { return &o.MinSize }).is(size{}, view.DefaultMinSize),
	},
	{
		name:  "preview",
		doc:   "bytes that the model gets at once",
		value: in(func(o *view.OutputCache) *int { return &o.Preview }).is(size{}, view.DefaultPreview),
	},
	{
		name:  "ttl",
		doc:   "how long it stays readable",
		value: in(func(o *view.OutputCache) *time.Duration { return &o.TTL }).is(duration{}, view.DefaultOutputTTL),
	},
}}}}

type outputCacheKind struct{ onOff[view.OutputCache] }

func (k outputCacheKind) read(d *decoder, n *document.Node, label string, to **view.OutputCache) bool {
	if !k.onOff.read(d, n, label, to) {
		return false
	}
	if *to == nil {
		*to = &view.OutputCache{}
	}
	if o := *to; o.Preview > o.MinSize {
		if preview := n.Given("preview"); preview != nil {
			d.fail(preview, label+".preview is larger than min_size: the preview would be the whole", "")
		}
		o.Preview = o.MinSize
	}
	return true
}

func (k outputCacheKind) show(s *secrets, o *view.OutputCache) *document.Node {
	if o != nil && o.MinSize == 0 {
		return document.NewBool(false)
	}
	return k.onOff.show(s, o)
}

// isFile reports whether a file is there that ends when it is read. One that cannot be
// looked at is: the one who reads it will say why not.
func isFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular()
}
