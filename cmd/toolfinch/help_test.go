package main

import (
	"slices"
	"strings"
	"testing"
)

// Few commands are learned: at most 40 are listed, and the first screen has those of the first hour.
func TestCommandsAreFew(t *testing.T) {
	root := newRoot("")
	all := listed(root)
	if len(all) > 40 {
		t.Errorf("%d commands are listed, at most 40 may be: %s", len(all), strings.Join(all, ", "))
	}
	for _, one := range firstScreen {
		for _, path := range one.paths {
			if !slices.Contains(all, path) {
				t.Errorf("the first screen has %q, which is no listed command", path)
			}
		}
	}
	for _, path := range all {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil || cmd.Short == "" || len(cmd.Short) > 100 {
			t.Errorf("%s: %v, about %q", path, err, cmd.Short)
		}
	}
	for path := range otherNames {
		if !slices.Contains(all, path) {
			t.Errorf("otherNames leads to %q, which is no listed command", path)
		}
	}
}
