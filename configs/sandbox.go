package configs

import (
	"toolfinch/internal/document"
	"toolfinch/upstream/sandbox"
)

// sandboxKind says what a server's process may touch: a word, a wrapping command, or rules.
type sandboxKind struct{}

const (
	sandboxNone     = "none"
	sandboxLandlock = "landlock"
)

var sandboxWords = choice[string]{words: []string{sandboxNone, sandboxLandlock}}

var sandboxKeys = section[sandbox.Rules]{keys: keys{
	{
		name: "read", without: "everything",
		doc:   "files and folders that it may read, beside what programs need: the system's, and its own installation",
		value: in(func(r *sandbox.Rules) *[]string { return &r.Read }).is(allowed[string]{str{check: (*decoder).path}}),
	},
	{
		name: "write", without: "nothing",
		doc:   "files and folders that it may read and change",
		value: in(func(r *sandbox.Rules) *[]string { return &r.Write }).is(allowed[string]{str{check: (*decoder).path}}),
	},
	{
		name: "connect", without: "any, and it may listen",
		doc:   "ports that it may connect to over TCP, wherever; `[]` for none",
		value: in(func(r *sandbox.Rules) *[]int { return &r.Ports }).is(allowed[int]{number[int]{1, 65535}}),
	},
}}

func (sandboxKind) read(d *decoder, n *document.Node, label string, to *sandbox.Settings) bool {
	switch n.Kind {
	case document.Mapping:
		if n.Given("filesystem") != nil || n.Given("network") != nil { // keys of VS Code
			d.warn(n, label+" of another client is not used", "its keys here: read, write, connect")
			return true
		}
		to.Landlock = &sandbox.Rules{}
		return sandboxKeys.read(d, n, label, to.Landlock)
	case document.List:
		if len(n.Items) == 0 {
			d.fail(n, label+" is empty", "write none, or the command that is put in front: [bwrap, ...]")
			return false
		}
		if !(list[string]{item: str{word: true, empty: true}}).read(d, n, label, &to.Wrapper) {
			return false
		}
		to.Wrapper[0] = d.program(n, label, to.Wrapper[0])
		return true
	}
	var word string
	ok := sandboxWords.read(d, n, label, &word)
	if word == sandboxLandlock {
		to.Landlock = &sandbox.Rules{}
	}
	return ok
}

func (sandboxKind) show(s *secrets, v sandbox.Settings) *document.Node {
	switch {
	case len(v.Wrapper) > 0:
		return list[string]{item: str{}, mask: (*secrets).words}.show(s, v.Wrapper)
	case v.Landlock == nil:
		return nil
	}
	if rules := sandboxKeys.show(s, *v.Landlock); len(rules.Pairs) > 0 {
		return rules
	}
	return document.NewText(sandboxLandlock)
}

func (sandboxKind) schema() schema {
	others := schema{"description": "of other clients", "type": "object", "anyOf": []schema{{"required": []string{"filesystem"}}, {"required": []string{"network"}}}}
	return anyOf(sandboxWords.schema(), schema{"type": "array", "items": anyText}, sandboxKeys.schema(), others)
}
