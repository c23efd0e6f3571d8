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

// SetHidden hides a server's tool from all views (enabled: false in the tools block under the server), or shows it
// again, and reports whether that changed the file. Showing a hidden tool leaves the file as it was before. An unknown
// server is a *NameError. name is the server's name of the tool; the edit does not check that the server has it.
func SetHidden(path, server, name string, hidden bool) (changed bool, err error) {
	f, block, err := openServer(path, server)
	if err != nil {
		return false, err
	}
	at := []string{block, server, "tools"}
	overrides, err := f.overrides(at)
	if err != nil {
		return false, err
	}
	by := view.HiddenBy(overrides, name)
	switch {
	case hidden == (by != nil):
		return false, nil
	case hidden && view.IsGlob(name):
		return false, fmt.Errorf("%s: the name of tool %q reads as a pattern: write it under %s, with \\ before each of * ? [ \\", f.name, name, strings.Join(at, "."))
	case hidden:
		return true, f.save(f.put(false, append(at, name, "enabled")...))
	case by.Tool != name || view.IsGlob(name): // removing a pattern shows all tools that it hides
		return false, fmt.Errorf("%w about %s.%s: %q under %s of %s hides it; change the pattern there", ErrPattern, server, name, by.Tool, strings.Join(at, "."), f.name)
	}
	return true, f.save(f.unhide(at, name, overrides))
}

// unhide removes enabled from a tool of the tools block, with the blocks that it leaves empty.
func (f *edit) unhide(at []string, name string, overrides []view.Override) error {
	for key := range rawjson.Members(f.At(append(at, name)...)) {
		if key != "enabled" {
			return f.set(nil, append(at, name, "enabled")...)
		}
	}
	var others []view.Override
	for _, o := range overrides {
		if o.Tool != name {
			others = append(others, o)
		}
	}
	if by := view.HiddenBy(others, name); by != nil { // without its own entry the tool stays hidden
		return fmt.Errorf("%w about %s.%s: %q under %s of %s hides it, too; change the pattern there", ErrPattern, at[1], name, by.Tool, strings.Join(at, "."), f.name)
	}
	if len(others) == 0 {
		return f.set(nil, at...)
	}
	return f.set(nil, append(at, name)...)
}

// overrides returns the tools of a tools block, with nothing but their names and whether they are hidden. Lists of
// other clients' formats (disabledTools, a list called tools) are an error: there the list decides.
func (f *edit) overrides(at []string) ([]view.Override, error) {
	for key, value := range rawjson.Members(f.At(at[:2]...)) {
		if slices.Contains(toolLists, key) && strings.HasPrefix(string(value), "[") {
			return nil, fmt.Errorf("%s: %s lists the tools of server %q: change that list", f.name, strings.Join(append(at[:2:2], key), "."), at[1])
		}
	}
	var overrides []view.Override
	for name, of := range rawjson.Members(f.At(at...)) {
		enabled := string(rawjson.Member(of, "enabled"))
		overrides = append(overrides, view.Override{Tool: name, Disabled: enabled == "false" || enabled == `"false"`})
	}
	return overrides, nil
}
