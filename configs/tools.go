package configs

import (
	"fmt"
	"path"
	"time"

	"toolfinch/internal/document"
	"toolfinch/trust/leaks"
	"toolfinch/view"
)

// overrides is a tools block: changes of a server's tools.
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

// overrideKeys are the keys of a tool in a tools block.
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

// override is a tool of a tools block. Null means {}.
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

// checkOverride looks for contradictions between the keys of a tool.
func checkOverride(d *decoder, n *document.Node, label string, o *view.Override) {
	renamed := make(map[string]*document.Node)
	for _, p := range o.Parameters {
		if p.Rename == "" {
			continue
		}
		rename := n.Find("parameters", p.Name, "rename")
		if first := renamed[p.Rename]; first != nil {
			d.fail(rename, fmt.Sprintf("%s.parameters.%s.rename: two parameters get one name", label, shorten(p.Name)), fmt.Sprintf("the other one is on line %d", first.Line))
			continue
		}
		renamed[p.Rename] = rename
	}
	name := n.Given("name")
	switch {
	case name == nil || name.Kind != document.Text || d.lenient && hasVariables(name):
	case view.IsGlob(o.Tool):
		d.fail(name, label+": a pattern of tools cannot have one name", "name a single tool")
	case o.Disabled: // its name stays free
		d.checkExposed(name, label+".name", o.Name)
	case o.Name != "" || !hasVariables(name):
		d.claim(name, label+".name", o.Name)
	}
}

// parameterKeys are the keys of a parameter.
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

// bound is any value of a parameter, kept as JSON.
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

func (bound) schema() schema { return schema{} }

// parameters are the parameters of a tool, by name.
var parameters = named[view.Parameter]{
	noun: "parameter", of: "parameters to what changes of them",
	item:  parameterKeys,
	fresh: func(p document.Pair) view.Parameter { return view.Parameter{Name: p.Key.Text, At: placeOf(p.Key)} },
	name:  func(p *view.Parameter) string { return p.Name },
}

// checkParameter looks for contradictions between the keys of a parameter.
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

// outputCache says which results are kept; without a minimum size, none.
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

func (outputCacheKind) schema() schema { return ref("output_cache") }

func (override) schema() schema { return anyOf(overrideKeys.schema(), null) }

// trimming bounds listed descriptions; view.TrimOff is written 0.
type trimming struct{ number[int] }

var trim = trimming{number[int]{0, 100_000}}

const trimDoc = "longest tool description in lists, in bytes; see [views.md](views.md#long-descriptions)"

func (k trimming) read(d *decoder, n *document.Node, label string, to *int) bool {
	ok := k.number.read(d, n, label, to)
	if ok && *to == 0 {
		*to = view.TrimOff
	}
	return ok
}

func (k trimming) show(s *secrets, i int) *document.Node {
	switch i {
	case 0:
		return nil
	case view.TrimOff:
		i = 0
	}
	return k.number.show(s, i)
}

var leaksWords = choice[leaks.Mode]{words: leaks.Modes}

const leaksDoc = "what happens to an answer with a secret: " +
	"`mark` adds a note, `redact` replaces the secret, `block` withholds the answer"
