package configs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"toolfinch/internal/document"
	"toolfinch/trust/policy"
	"toolfinch/trust/rate"
	"toolfinch/view"
)

// policyKind is the path of a file, or the text of policies.
type policyKind struct{}

func (policyKind) read(d *decoder, n *document.Node, label string, to *Policy) bool {
	to.at = *n
	var text string
	if !d.text(n, label, &text) || !notEmpty(d, n, label, &text) {
		return false
	}
	if strings.Contains(text, "(") && strings.Contains(text, ";") {
		to.Text = text
		return true
	}
	to.File = text
	return d.absolute(n, label, &to.File)
}

func (policyKind) show(s *secrets, p Policy) *document.Node {
	return str{}.show(s, cmp.Or(p.File, p.Text))
}

func (policyKind) schema() schema {
	return schema{"type": "string", "description": "a file of policies in Cedar, or the policies themselves"}
}

// compilePolicies compiles policies and the views' allow. An error refuses the whole
// configuration, because the broken policy could be a forbid.
func (d *decoder) compilePolicies(c *Config) {
	var texts []policy.Text
	for _, p := range c.PolicyTexts {
		if p.File == "" {
			texts = append(texts, d.inline(p))
			continue
		}
		shown := p.File
		if short, err := filepath.Rel(d.dir, p.File); err == nil && filepath.IsLocal(short) {
			shown = short
		}
		data, bad := read(source{path: p.File, shown: shown})
		if bad != nil {
			d.fail(&p.at, "policies: "+bad.Error(), "")
			continue
		}
		texts = append(texts, policy.Text{Cedar: string(data), File: shown, Line: 1, Column: 1})
		c.fingerprint = hash(c.fingerprint + string(data))
	}
	shorthands := 0
	for _, v := range c.Views {
		if v.Allow != view.AllowReadOnly {
			continue
		}
		shorthands++
		texts = append(texts, policy.Text{
			Cedar: fmt.Sprintf("@id(%q)\nforbid (principal, action == Action::\"call\", resource in View::%q) unless { context.readOnly };", "allow: read_only of view "+v.Name, v.Name),
			File:  d.file, Line: v.At.Line, Column: v.At.Column,
		})
	}
	if len(c.PolicyTexts) == 0 && shorthands > 0 { // the shorthands only forbid
		texts = append(texts, policy.Text{Cedar: "@id(\"everything\")\npermit (principal, action, resource);", File: d.file, Line: 1, Column: 1})
	}
	var wrong []*policy.Error
	c.Policies, wrong = policy.Compile(texts, c.Auth.Sources()...)
	for _, err := range wrong {
		d.errors = append(d.errors, &Error{File: err.File, Line: err.Line, Column: err.Column, Message: err.Message, Hint: err.Hint})
	}
	d.checkNamed(c)
	d.checkRenamed(c)
	d.checkAsked()
}

// inline returns policies in the configuration with their place and indentation.
func (d *decoder) inline(p Policy) policy.Text {
	text := policy.Text{Cedar: p.Text, File: d.file, Line: max(1, p.at.Line), Column: max(1, p.at.Column)}
	switch lines := strings.Contains(strings.TrimSuffix(p.Text, "\n"), "\n"); {
	case lines && d.isJSON:
		text.Escaped = true
	case lines: // a block begins on the next line, indented like the mark of a list
		text.Line, text.Indent = text.Line+1, text.Column-1
	}
	return text
}

// checkNamed warns of unknown servers and views in policies.
func (d *decoder) checkNamed(c *Config) {
	views := []string{view.Default}
	for _, v := range c.Views {
		views = append(views, v.Name)
	}
	for _, named := range c.Policies.Named() {
		valid := d.known
		if named.Type == "View" {
			valid = views
		}
		if !slices.Contains(valid, named.Name) {
			d.warnings = append(d.warnings, &Error{
				File: named.At.File, Line: named.At.Line, Column: named.At.Column,
				Message: fmt.Sprintf("policy: there is no %s %q", strings.ToLower(named.Type), shorten(named.Name)), Hint: nearHint(named.Name, valid),
			})
		}
	}
}

// checkRenamed warns of policies that use a renamed argument's new name: policies see the
// arguments that the server gets.
func (d *decoder) checkRenamed(c *Config) {
	servers := slices.Clone(c.Tools)
	for _, v := range c.Views {
		servers = append(servers, v.Tools...)
	}
	for _, server := range servers {
		for _, override := range server.Tools {
			for _, p := range override.Parameters {
				if p.Rename != "" && c.Policies.Asks(p.Rename) {
					d.warnings = append(d.warnings, &Error{
						File: d.file, Line: p.At.Line, Column: p.At.Column,
						Message: fmt.Sprintf("policy: it asks for the argument %q, which is %q renamed for clients", shorten(p.Rename), shorten(p.Name)), Hint: fmt.Sprintf("policies see what the server gets: write context.args.%s", shorten(p.Name)),
					})
				}
			}
		}
	}
}

// The words of per: a rate limit counts calls separately for each.
const (
	perPrincipal = "principal"
	perServer    = "server"
	perTool      = "tool"
)

var perWords = allowed[string]{choice[string]{words: []string{perPrincipal, perServer, perTool}}}

// rateRule is a rate limit while it is read.
type rateRule struct {
	rate.Rule
	per []string
}

var rateKeys = section[rateRule]{check: checkRate, keys: keys{
	{
		name: "per", without: "`[principal]`",
		doc:   "counts calls separately by `principal`, `server`, `tool`; `[]`: all together",
		value: in(func(r *rateRule) *[]string { return &r.per }).is(perWords),
	},
	{
		name: "server", without: "all",
		doc:   "the server of the calls",
		value: in(func(r *rateRule) *string { return &r.Server }).is(str{check: (*decoder).serverName}),
	},
	{
		name: "tool", without: "all",
		doc:   "a pattern over `server.tool`",
		value: in(func(r *rateRule) *string { return &r.Tool }).is(str{check: glob}),
	},
	{
		name: "calls_per_minute", without: "no bound",
		doc:   "token bucket: this many at once, refilled evenly",
		value: in(func(r *rateRule) *int { return &r.PerMinute }).is(number[int]{1, 1_000_000}),
	},
	{
		name: "concurrency", without: "no bound",
		doc:   "concurrent calls",
		value: in(func(r *rateRule) *int { return &r.Concurrency }).is(number[int]{1, 1_000_000}),
	},
}}

// rateKind is a rate limit.
type rateKind struct{}

func (rateKind) read(d *decoder, n *document.Node, label string, to *rate.Rule) bool {
	r := rateKeys.fresh()
	if !rateKeys.read(d, n, label, &r) {
		return false
	}
	*to = r.Rule
	to.Principals = r.per == nil || slices.Contains(r.per, perPrincipal)
	to.Servers, to.Ids = slices.Contains(r.per, perServer), slices.Contains(r.per, perTool)
	to.Name = strings.NewReplacer("[", ".", "]", "").Replace(label)
	return true
}

func (rateKind) show(s *secrets, rule rate.Rule) *document.Node {
	r := rateRule{Rule: rule, per: []string{}}
	for _, apart := range []struct {
		is   bool
		word string
	}{{rule.Principals, perPrincipal}, {rule.Servers, perServer}, {rule.Ids, perTool}} {
		if apart.is {
			r.per = append(r.per, apart.word)
		}
	}
	return rateKeys.show(s, r)
}

func (rateKind) schema() schema { return rateKeys.schema() }

func checkRate(d *decoder, n *document.Node, label string, r *rateRule) {
	if r.PerMinute == 0 && r.Concurrency == 0 && n.Given("calls_per_minute") == nil && n.Given("concurrency") == nil {
		d.fail(n, label+" bounds nothing", "say calls_per_minute, concurrency or both")
	}
}

// serverName notes the name of a server for checkAsked.
func (d *decoder) serverName(n *document.Node, label string, name *string) bool {
	d.asked = append(d.asked, origin{node: n, label: label, ok: true})
	return true
}

// checkAsked reports unknown servers in rate limits, once all servers are known.
func (d *decoder) checkAsked() {
	for _, from := range d.asked {
		if !d.knowsServer(from.node.Text) {
			d.fail(from.node, fmt.Sprintf("%s: there is no server %q", from.label, shorten(from.node.Text)), d.serverHint(from.node.Text))
		}
	}
}
