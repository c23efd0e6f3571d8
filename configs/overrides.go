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

	"toolfinch/view"
)

// reservedNames are the meta-tools: no tool is exposed under one of them.
var reservedNames = []string{
	"retrieve_tools", "call_tool", "call_tool_read", "call_tool_write", "call_tool_destructive",
	"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "list_provisioned",
	"read_output", "run_script",
}

var exposedName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// claims are the exposed names that were given so far, and where; ownTool for
// those of the view's own tools.
type claims map[string]*node

var ownTool = new(node)

// claim checks an exposed name and that no other tool has it. The name itself is
// not repeated: it may come from a variable.
func (d *decoder) claim(taken claims, n *node, label, name string) {
	if !d.checkExposed(n, label, name) {
		return
	}
	switch first := taken[name]; first {
	case nil:
		taken[name] = n
	case ownTool:
		d.failOwn(n, label)
	default:
		d.fail(n, label+" is the name of another tool already", fmt.Sprintf("of the one on line %d", first.line))
	}
}

func (d *decoder) failOwn(n *node, label string) {
	d.fail(n, label+" is the name of one of toolfinch's own tools: "+n.String(), "choose another one")
}

func (d *decoder) checkExposed(n *node, label, name string) bool {
	switch {
	case !exposedName.MatchString(name):
		d.mustBe(n, label, "1 to 64 letters, digits, _ and -", "clients and models accept no other names of tools")
		return false
	case slices.Contains(reservedNames, name):
		d.failOwn(n, label)
		return false
	}
	return true
}

// isGlob reports whether the name of a tool stands for several.
func isGlob(s string) bool { return strings.ContainsAny(s, `*?[\`) }

// overrideSettings are all keys of a tool within a tools block.
var overrideSettings = []field[view.Override]{
	{key: "name", set: func(d *decoder, o *view.Override, n *node, label string) {
		d.text(n, label, &o.Name)
	}},
	{key: "title", set: func(d *decoder, o *view.Override, n *node, label string) {
		d.optionalText(n, label, &o.Title)
	}},
	{key: "description", set: func(d *decoder, o *view.Override, n *node, label string) {
		d.optionalText(n, label, &o.Description)
	}},
	{key: "enabled", set: func(d *decoder, o *view.Override, n *node, label string) {
		enabled := true
		d.boolean(n, label, &enabled)
		o.Disabled = !enabled
	}},
	{key: "parameters", set: func(d *decoder, o *view.Override, n *node, label string) {
		o.Parameters = d.parameters(n, label)
	}},
	{key: "output_cache", set: func(d *decoder, o *view.Override, n *node, label string) {
		o.Output = d.outputCache(n, label)
	}},
}

func (d *decoder) optionalText(n *node, label string, to **string) {
	var text string
	if d.text(n, label, &text) {
		*to = &text
	}
}

// toolsBlock reads a tools block: the tools of one server and what changes of
// them.
func (d *decoder) toolsBlock(n *node, label string, taken claims) []view.Override {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of tools to what changes of them, not "+string(n.kind), "write {} for a tool as it is")
		return nil
	}
	var list []view.Override
	for _, p := range d.unique(n, "tool") {
		list = append(list, d.toolOverride(p, label+"."+shorten(p.key.text), taken))
	}
	return list
}

func (d *decoder) toolOverride(p pair, label string, taken claims) view.Override {
	o := view.Override{Tool: p.key.text, At: placeOf(p.key)}
	glob := isGlob(o.Tool)
	switch _, err := path.Match(o.Tool, ""); {
	case o.Tool == "":
		d.fail(p.key, label+": a tool without a name", "")
	case err != nil:
		d.fail(p.key, fmt.Sprintf("%s: %q is no pattern", label, shorten(o.Tool)), `* ? and [a-z] stand for characters, \ before them for themselves`)
	}
	switch p.value.kind {
	case kindNull:
		return o
	case kindMapping:
	default:
		d.fail(p.value, label+" must be a mapping, not "+string(p.value.kind), "write {} for the tool as it is, {enabled: false} to leave it out")
		return o
	}
	fields(d, p.value, label, label+".", overrideSettings, &o)
	name := p.value.given("name")
	switch {
	case name == nil || name.kind != kindText || d.lenient && name.hasVariables():
	case glob:
		d.fail(name, label+": a pattern of tools cannot have one name", "name a single tool")
	case o.Disabled: // nobody sees it
		d.checkExposed(name, label+".name", o.Name)
	case o.Name != "" || !name.hasVariables():
		d.claim(taken, name, label+".name", o.Name)
	}
	return o
}

// parameterSettings are all keys of a parameter of a tool.
var parameterSettings = []field[view.Parameter]{
	{key: "rename", set: func(d *decoder, p *view.Parameter, n *node, label string) {
		d.name(n, label, &p.Rename)
	}},
	{key: "description", set: func(d *decoder, p *view.Parameter, n *node, label string) {
		d.optionalText(n, label, &p.Description)
	}},
	{key: "default", null: true, set: func(d *decoder, p *view.Parameter, n *node, label string) {
		p.Default, _ = d.value(n, label)
	}},
	{key: "hidden", set: func(d *decoder, p *view.Parameter, n *node, label string) {
		d.boolean(n, label, &p.Hidden)
	}},
	{key: "value", null: true, set: func(d *decoder, p *view.Parameter, n *node, label string) {
		p.Value, _ = d.value(n, label)
	}},
}

func (d *decoder) parameters(n *node, label string) []view.Parameter {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of parameters to what changes of them, not "+string(n.kind), "")
		return nil
	}
	var list []view.Parameter
	renamed := make(map[string]*node)
	for _, p := range d.unique(n, "parameter") {
		item := label + "." + shorten(p.key.text)
		parameter := view.Parameter{Name: p.key.text, At: placeOf(p.key)}
		if !fields(d, p.value, item, item+".", parameterSettings, &parameter) {
			continue
		}
		d.checkParameter(&parameter, p.value, item)
		list = append(list, parameter)
		if parameter.Rename == "" {
			continue
		}
		if first := renamed[parameter.Rename]; first != nil {
			d.fail(p.value.find("rename"), item+".rename: two parameters get one name", fmt.Sprintf("the other one is on line %d", first.line))
			continue
		}
		renamed[parameter.Rename] = p.value.find("rename")
	}
	return list
}

// checkParameter looks at what several keys say together.
func (d *decoder) checkParameter(p *view.Parameter, n *node, label string) {
	value, fallback := n.find("value"), n.find("default")
	hidden := p.Hidden || value != nil
	switch {
	case value != nil && fallback != nil:
		d.fail(fallback, label+" has both value and default", "value is always sent, default where the client sends nothing: keep one")
	case value != nil && n.given("hidden") != nil && !p.Hidden && !d.lenient:
		d.fail(n.find("hidden"), label+": what has a value is hidden", "remove hidden, or write default in place of value")
	}
	if rename := n.given("rename"); rename != nil && hidden {
		d.fail(rename, label+" is hidden and renamed, but nobody sees the name", "remove one of the two")
	}
	if description := n.given("description"); description != nil && hidden {
		d.warn(description, label+": the description is not used, the parameter is hidden", "")
	}
}

// outputCacheSettings are all keys of output_cache.
var outputCacheSettings = []field[view.OutputCache]{
	{key: "min_size", set: func(d *decoder, o *view.OutputCache, n *node, label string) {
		d.size(n, label, &o.MinSize)
	}},
	{key: "preview", set: func(d *decoder, o *view.OutputCache, n *node, label string) {
		d.size(n, label, &o.Preview)
	}},
	{key: "ttl", set: func(d *decoder, o *view.OutputCache, n *node, label string) {
		d.duration(n, label, &o.TTL)
	}},
}

// outputCache reads true, false or a mapping; nil when it is none of them.
func (d *decoder) outputCache(n *node, label string) *view.OutputCache {
	o := &view.OutputCache{MinSize: view.DefaultMinSize, Preview: view.DefaultPreview, TTL: view.DefaultOutputTTL}
	switch on, ok := onOff(d, n, label, outputCacheSettings, o); {
	case !ok:
		return nil
	case !on:
		return &view.OutputCache{}
	}
	if o.Preview > o.MinSize {
		if preview := n.given("preview"); preview != nil {
			d.fail(preview, label+".preview is larger than min_size: the preview would be the whole", "")
		}
		o.Preview = o.MinSize
	}
	return o
}

// isFile reports whether a file is there. One that cannot be looked at is: the
// one who reads it will say why not.
func isFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return !info.IsDir()
}
