package tool_test

import (
	"slices"
	"testing"

	"toolfinch/tool"
)

func TestNormalURI(t *testing.T) {
	for uri, want := range map[string]string{
		"":                      "",
		"secret":                "secret",
		"a b:c":                 "a b:c", // no scheme
		":x":                    ":x",
		"RES://Up/%73ecret":     "res://up/secret",
		"Z1+-.://AZaz/Z":        "z1+-.://azaz/Z",
		"A09://Up/":             "a09://up/",
		"1a://Up":               "1a://Up", // no scheme
		"res://up":              "res://up/",
		"res://up?q":            "res://up/?q",
		"res://up/a/./b/../c":   "res://up/a/c",
		"res://up/../../a":      "res://up/a",
		"res://up/a/..":         "res://up/",
		"res://up/%2e%2E/a":     "res://up/a",
		"res://up/a%2fb%zz%4":   "res://up/a%2Fb%25zz%254",
		"res://U:P@Up:80/":      "res://U:P@up:80/",
		"res://up:/":            "res://up/",
		"res://%41%c3:80":       "res://a%C3:80/",
		"res://[::1]/A":         "res://[::1]/A",
		"res://up/A?%41=/./b":   "res://up/A?A=/./b",
		"res://up/a?":           "res://up/a?",
		"res://up/a#%62/../":    "res://up/a#b/../",
		"res://up/a%3Fb%23c":    "res://up/a%3Fb%23c",
		"urn:a:%7e":             "urn:a:~",
		"notes:a/../b":          "notes:/b",
		"file:/.//x":            "file:/.//x",
		"file:/a/..//x":         "file:/.//x",
		"file:///a//b/":         "file:///a//b/",
		"res://up/{id}/{+path}": "res://up/{id}/{+path}",
		"x:%2%2%2":              "x:%252%252%252",
	} {
		if got := tool.NormalURI(uri); got != want {
			t.Errorf("%q is %q, want %q", uri, got, want)
		}
	}
}

func FuzzNormalURI(f *testing.F) {
	for _, uri := range []string{"RES://Up/%73ecret/./../x?q#f", "file:/.//x", "urn:a:%7e", "x://a::@b::/..", "toolfinch:up/res://up/a", "%3a:", "a:/%2e%2e//..", "a:..//b"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		normal := tool.NormalURI(uri)
		if again := tool.NormalURI(normal); again != normal {
			t.Errorf("%q is %q, and that is %q", uri, normal, again)
		}
	})
}

func TestUnescapeURI(t *testing.T) {
	for uri, want := range map[string]string{
		"": "", "%": "%", "a%zz%4": "a%zz%4", "%2541": "A", "%4%31": "A", "%%34%31": "A", "%%%%": "%%%%", "res%3A%2F%2Fup": "res://up", "%c3%28": "\xc3(", "%4A%4f%3a": "JO:", "%4G": "%4G",
	} {
		if got := tool.UnescapeURI(uri); got != want {
			t.Errorf("%q: %q, want %q", uri, got, want)
		}
	}
}

// A policy about a resource holds for every spelling that a server may take for it. The normal form is the first.
func TestSpellings(t *testing.T) {
	for uri, want := range map[string][]string{
		"file:///srv/a":            {"file:///srv/a"},
		"FILE://localhost/srv/./a": {"file://localhost/srv/a", "file:///srv/a"},
		"file:///srv//a. .":        {"file:///srv//a. .", "file:///srv/a"},
		"file:///srv%5Ca":          {"file:///srv%5Ca", "file:///srv/a"},
		`res://u:p@up:80\%2561`:    {`res://u:p@up:80\%2561/`, "res://u:p@up:80/a", "res://up/a", "res://u:p@up:80/a/"},
		"res://up/a?x#y":           {"res://up/a?x#y", "res://up/a"},
		"res://up/a%00.txt":        {"res://up/a%00.txt", "res://up/a\x00.txt", "res://up/a"},
		"res://up/a;v=1/b":         {"res://up/a;v=1/b", "res://up/a"},
		"res://up/x?/../a":         {"res://up/x?/../a", "res://up/a", "res://up/x"},
		"res://up/x#/../a":         {"res://up/x#/../a", "res://up/a", "res://up/x"},
	} {
		if got := tool.Spellings(uri); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", uri, got, want)
		}
	}
}
