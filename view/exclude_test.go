package view

import (
	"strings"
	"testing"

	"toolfinch/tool"
)

func TestAnExcludedResourceIsExcludedInEverySpelling(t *testing.T) {
	s := Settings{IncludeAll: true, Exclude: []Pattern{
		{Glob: "up.res://up/secret"}, {Glob: "up.RES://UP/%64oc?"}, {Glob: "up.res://up/private/*"}, {Glob: "up.res://up/user/{id}"}, {Glob: "up.file:///etc/*"}, {Glob: "*.x:hidden"},
	}}
	for _, uri := range []string{
		"res://up/secret", "res://up/%73ecret", "RES://up/secret", "res://UP/secret", "res://up/./secret", "res://up/a/../secret", "res://up/%2e%2e/secret",
		"res://up/secret?", "res://up/secret?x", "res://up/secret#", "res://up/secret#x", "res://up/secret;v=1", "res://up/secret%00.md", "res://up/SECRET",
		"res://up//secret", "res://up/secret/", "res://up/secret.", "res://up/secret%20", `res://up\secret`, "res://me@up/secret", "res://up:80/secret",
		"res://up/%2573ecret", "res://up/%252573ecret", "res:%2F%2Fup%2Fsecret", "res://up%2Fsecret", "r%65s://%@up/secret", "res://up/%%37%33ecret",
		"res://up/doc1", "res://up/%64oc1", "res://up/private/a/b", "res://up/x/..%2Fprivate/a", "res://up/private%2Fa", "res://up/user/7", "res://up/%75ser/7",
		"file:///etc/passwd", "file:/etc/passwd", "file://localhost/etc/passwd", "file:////etc/passwd", "file:///home/../etc/passwd", "x:hidden", "X:%68idden",
	} {
		if !s.Excludes(tool.ID{Server: "up", Name: uri, Kind: tool.KindResource}) {
			t.Errorf("%s is not excluded", uri)
		}
		if uri[0]|0x20 != 'x' && s.Excludes(tool.ID{Server: "other", Name: uri, Kind: tool.KindResource}) {
			t.Errorf("%s of another server is excluded", uri)
		}
	}
	for _, uri := range []string{"res://up/secrets", "res://up/a/secret", "res://up/doc", "res://up/private", "file:///etcetera/x", "res://down/secret", "x:hid", ""} {
		if s.Excludes(tool.ID{Server: "up", Name: uri, Kind: tool.KindResource}) {
			t.Errorf("%s is excluded", uri)
		}
	}
	listed := choice{tool: &tool.Tool{Def: &tool.Def{ID: tool.ID{Server: "up", Name: "res://up/user/me", Kind: tool.KindResource}}}}
	if !s.selected(listed) {
		t.Error("excluding a template excludes a listed resource")
	}
}

func TestAViewRestrictsAServer(t *testing.T) {
	for glob, want := range map[string]bool{
		"up.x": true, "up.*": true, "*": true, "u*.x": true, "[a-z]p.x": true, "up.a*": true, "upper.x": false, "other.*": false, "upx*": false, "up": false,
	} {
		s := Settings{IncludeAll: true, Exclude: []Pattern{{Glob: glob}}}
		if got := s.Restricts("up"); got != want {
			t.Errorf("%s: %v, want %v", glob, got, want)
		}
	}
	if !(&Settings{}).Restricts("up") {
		t.Error("a view without include_all restricts nothing")
	}
}

// Whatever spelling RFC 3986 makes equal to an excluded URI is excluded.
func FuzzExcludes(f *testing.F) {
	for _, uri := range []string{"RES://Up/a/../%73ecret", "res://up/%252e%252e/secret", "res:%2F%2Fup/secret", "res://up/\\secret\x00", "%", "::", "res://u@up:/./secret?#", "r%65s://%@up/s%65Cr%65t"} {
		f.Add(uri)
	}
	s := Settings{IncludeAll: true, Exclude: []Pattern{{Glob: "up.res://up/secret"}, {Glob: "*.x:{a}"}}}
	f.Fuzz(func(t *testing.T, uri string) {
		excludes := func(uri string) bool {
			return s.Excludes(tool.ID{Server: "up", Name: uri, Kind: tool.KindResource})
		}
		if normal := tool.NormalURI(uri); excludes(normal) && !excludes(uri) {
			t.Errorf("%q is not excluded, its normal form %q is", uri, normal)
		}
		scheme, rest, _ := strings.Cut(uri, ":")
		if escaped := scheme + ":" + strings.ReplaceAll(rest, "s", "%73"); excludes(uri) && !excludes(escaped) {
			t.Errorf("%q is not excluded, %q is", escaped, uri)
		}
	})
}
