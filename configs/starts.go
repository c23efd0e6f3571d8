package configs

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"toolfinch/configs/clients"
	"toolfinch/internal/document"
)

// Starts returns what a configuration runs and where it connects, as it is written, for a
// person who is to trust it: a text for each, first what runs beside the servers. Values of
// env and headers are left out, and other secrets are masked. It reads no variable and no
// other file.
func Starts(path string, data []byte) ([]string, error) {
	d := newDecoder(source{path: path}, filepath.Dir(path), func(string) (string, bool) { return "", false })
	servers := d.written(data)
	if d.tree == nil || len(d.errors) > 0 {
		return nil, errors.New("it has errors")
	}
	root := d.tree
	starts := beside(root)
	for _, t := range servers {
		starts = append(starts, t.name+": "+startOf(t.server(), t.node()))
	}
	none := new(secrets)
	for _, name := range []string{"openai_base_url", "store", "data_dir"} {
		if n := root.Given(name); n != nil {
			starts = append(starts, name+": "+none.word(n.Text))
		}
	}
	return starts, nil
}

// beside returns what runs beside the servers: the shell hook, hooks, custom tools, their
// interpreter, and policies.
func beside(root *document.Node) (starts []string) {
	none := new(secrets)
	add := func(what string, words []string) {
		if len(words) > 0 {
			starts = append(starts, what+": "+strings.Join(none.words(words), " "))
		}
	}
	add("list_changed_exec", wordsOf(root.Given("list_changed_exec")))
	if views := root.Given(viewBlock); views != nil {
		for _, view := range views.Pairs {
			for _, at := range []string{"pre_call", "post_call"} {
				n := view.Value.Find("hooks", at)
				add("view "+view.Key.Text+", "+at, wordsOf(n))
				for _, kind := range []string{"starlark", "python", "command"} {
					add("view "+view.Key.Text+", "+at, wordsOf(n.Find(kind)))
				}
			}
			if tools := view.Value.Find("custom_tools"); tools != nil {
				for _, n := range tools.Items {
					add("view "+view.Key.Text+", custom tool", append(wordsOf(n), wordsOf(n.Find("module"))...))
				}
			}
		}
	}
	if n := root.Given("python"); n != nil {
		text := cmp.Or(strings.Join(none.words(append(wordsOf(n), wordsOf(n.Find("command"))...)), " "), "python3")
		starts = append(starts, "python: "+text+afterComma("env", keysOf(n.Find("env")))+afterComma("inherits", wordsOf(n.Find("inherit_env"))))
	}
	for _, text := range wordsOf(root.Given("policies")) {
		add("policies", []string{text})
	}
	return starts
}

// startOf describes a server. n has our keys.
func startOf(s clients.Server, n *document.Node) string {
	command, url := Shown(s)
	text := url
	if s.Command != "" {
		if wrapper := n.Find("sandbox"); wrapper != nil && wrapper.Kind == document.List { // the command is its last arguments
			command = append(new(secrets).words(wordsOf(wrapper)), command...)
		}
		text = strings.Join(command, " ") + url
	}
	if s.Cwd != "" {
		text += ", in " + s.Cwd
	}
	return text + afterComma("env", slices.Sorted(maps.Keys(s.Env))) + afterComma("inherits", wordsOf(n.Find("inherit_env"))) +
		afterComma("headers", slices.Sorted(maps.Keys(s.Headers)))
}

// afterComma lists names after what they are; "" without names.
func afterComma(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", " + what + " " + strings.Join(names, " ")
}

// wordsOf returns a value and the values of a list as they are written.
func wordsOf(n *document.Node) (words []string) {
	if n == nil {
		return nil
	}
	if n.Text != "" {
		words = append(words, n.Text)
	}
	for _, item := range n.Items {
		words = append(words, wordsOf(item)...)
	}
	return words
}

func keysOf(n *document.Node) (names []string) {
	if n == nil {
		return nil
	}
	for _, p := range n.Pairs {
		names = append(names, p.Key.Text)
	}
	return names
}
