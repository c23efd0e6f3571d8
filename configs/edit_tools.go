package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/view"
)

// ErrPattern says that a pattern of the tools block decides about a tool, so an edit of one tool cannot.
var ErrPattern = errors.New("a pattern decides")

// toolEdit is an edit of one tool in the tools block under its server.
type toolEdit struct {
	*edit
	server, name string
	block, entry []string        // paths of the block, and of the tool in it
	overrides    []view.Override // of the block: only names, and whether they are hidden
}

// openTool opens the file. An unknown server is a *NameError. Lists of other clients' formats (disabledTools, a list
// called tools) are an error: there the list decides.
func openTool(path, server, name string) (*toolEdit, error) {
	f, servers, err := openServer(path, server)
	if err != nil {
		return nil, err
	}
	for key, value := range rawjson.Members(f.At(servers, server)) {
		if slices.Contains([]string{"tools", "includeTools", "excludeTools"}, folded[foldKey(key)]) && strings.HasPrefix(string(value), "[") {
			return nil, fmt.Errorf("%s: %s.%s.%s lists the tools of server %q: change that list", f.name, servers, server, key, server)
		}
	}
	t := &toolEdit{edit: f, server: server, name: name, block: []string{servers, server, "tools"}, entry: []string{servers, server, "tools", name}}
	for name, of := range rawjson.Members(f.At(t.block...)) {
		enabled := string(rawjson.Member(of, "enabled"))
		t.overrides = append(t.overrides, view.Override{Tool: name, Disabled: enabled == "false" || enabled == `"false"`})
	}
	return t, nil
}

// SetHidden hides a server's tool from all views (enabled: false in the tools block under the server), or shows it
// again, and reports whether that changed the file. Showing a hidden tool leaves the file as it was before. name is the
// server's name of the tool; the edit does not check that the server has it.
func SetHidden(path, server, name string, hidden bool) (changed bool, err error) {
	f, err := openTool(path, server, name)
	if err != nil {
		return false, err
	}
	by := view.HiddenBy(f.overrides, name)
	switch {
	case hidden == (by != nil):
		return false, nil
	case hidden && view.IsGlob(name):
		return false, f.readsAsPattern()
	case hidden:
		return true, f.save(f.put(false, append(f.entry, "enabled")...))
	case by.Tool != name || view.IsGlob(name): // removing a pattern shows all tools that it hides
		return false, f.decidedBy(by.Tool, " hides it; change the pattern there")
	}
	if f.only(f.entry, "enabled") { // the entry goes: a pattern may hide the tool, too
		others := slices.DeleteFunc(f.overrides, func(o view.Override) bool { return o.Tool == name })
		if by := view.HiddenBy(others, name); by != nil {
			return false, f.decidedBy(by.Tool, " hides it, too; change the pattern there")
		}
	}
	return true, f.save(f.drop("enabled"))
}

// drop removes a key of the tool, with the blocks that it leaves empty.
func (f *toolEdit) drop(key string) error {
	switch {
	case !f.only(f.entry, key):
		return f.set(nil, append(f.entry, key)...)
	case !f.only(f.block, f.name):
		return f.set(nil, f.entry...)
	}
	return f.set(nil, f.block...)
}

// only reports whether the object at a path has no member but key.
func (f *toolEdit) only(path []string, key string) bool {
	for other := range rawjson.Members(f.At(path...)) {
		if other != key {
			return false
		}
	}
	return true
}

func (f *toolEdit) readsAsPattern() error {
	return fmt.Errorf("%s: the name of tool %q reads as a pattern: write it under %s, with \\ before each of * ? [ \\", f.edit.name, f.name, strings.Join(f.block, "."))
}

// decidedBy returns an error that wraps ErrPattern. then ends its text.
func (f *toolEdit) decidedBy(pattern, then string) error {
	return fmt.Errorf("%w about %s.%s: %q under %s of %s%s", ErrPattern, f.server, f.name, pattern, strings.Join(f.block, "."), f.edit.name, then)
}
