package skills

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

var makeFIFO func(path string) error // nil on Windows

// write makes files; a name that ends with @ is a link, with | a FIFO.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, filepath.FromSlash(strings.TrimRight(name, "@|")))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch name[len(name)-1] {
		case '@':
			must.Do(t, os.Symlink(filepath.FromSlash(text), path))
		case '|':
			must.Do(t, makeFIFO(path))
		default:
			must.Do(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
}

func markdown(name string) string {
	return "---\nname: " + name + "\ndescription: About " + name + ".\nversion: 1.0\n---\n# How to " + name + "\n"
}

// many adds n files.
func many(files map[string]string, n int, file func(int) (name, text string)) map[string]string {
	for i := range n {
		name, text := file(i)
		files[name] = text
	}
	return files
}

func TestRead(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, map[string]string{"secret/SKILL.md": markdown("secret"), "secret.txt": "s"})
	deep := "a/b/c/d/e/f/g/"
	for name, test := range map[string]struct {
		files    map[string]string
		want     []string // URIs of files
		problems []string
	}{
		"files, sorted; nested and hidden ones": {
			map[string]string{"git-flow/SKILL.md": markdown("git-flow"), "git-flow/z.md": "z", "git-flow/IN/SKILL.md": markdown("in"), "git-flow/a b.sh": "a", "git-flow/.env": "x", ".hidden/SKILL.md": markdown("hidden"), "notes.txt": "n"},
			[]string{"skill://git-flow/IN/SKILL.md", "skill://git-flow/SKILL.md", "skill://git-flow/a%20b.sh", "skill://git-flow/z.md"}, nil,
		},
		"prefixes are escaped":      {map[string]string{"a:b/ü/x/SKILL.md": markdown("x")}, []string{"skill://a%3Ab/%C3%BC/x/SKILL.md"}, nil},
		"a broken one costs itself": {map[string]string{"a/SKILL.md": "# A", "b/SKILL.md": markdown("c"), "d/SKILL.md": markdown("d")}, []string{"skill://d/SKILL.md"}, []string{`/a": it is left out: SKILL.md: it has no frontmatter`, `/b": it is left out: uri is`}},
		"no description":            {map[string]string{"a/SKILL.md": "---\nname: a\n---\n"}, nil, []string{"frontmatter.description is missing"}},
		"nothing":                   {map[string]string{"a/b.md": "b"}, nil, []string{"no directory in it has a SKILL.md"}},
		"links": {
			map[string]string{"a/SKILL.md": markdown("a"), "a/out@": outside + "/secret.txt", "a/dir@": outside, "a/near@": "SKILL.md", "secret@": outside + "/secret", "b/SKILL.md@": outside + "/secret/SKILL.md"},
			[]string{"skill://a/SKILL.md"}, []string{`/secret": symbolic links are not followed`, `/a/dir":`, `/a/near":`, `/a/out":`, `/b/SKILL.md":`},
		},
		"a FIFO":             {map[string]string{"a/SKILL.md": markdown("a"), "a/pipe|": ""}, nil, []string{`/a": it is left out: pipe: it is no regular file`}},
		"a FIFO as SKILL.md": {map[string]string{"a/SKILL.md|": ""}, nil, []string{"SKILL.md: it is no regular file"}},
		"control characters": {map[string]string{"a/SKILL.md": markdown("a"), "a/x\ny": "x", "b/SKILL.md": markdown("b")}, []string{"skill://b/SKILL.md"}, []string{`"x\ny" has characters that no URI has`}},
		"depth":              {map[string]string{deep + "h/SKILL.md": markdown("h"), deep + "h/i/x": "x", deep + "g/SKILL.md": markdown("g"), deep + "f/i/j/SKILL.md": markdown("j")}, []string{"skill://a/b/c/d/e/f/g/g/SKILL.md"}, []string{"more than 8 directories deep", "more than 8 directories deep"}},
		"files of a skill":   {many(map[string]string{"a/SKILL.md": markdown("a")}, 512, func(i int) (string, string) { return fmt.Sprint("a/f", i), "x" }), nil, []string{"more than 512 files"}},
		"bytes of a skill":   {map[string]string{"a/SKILL.md": markdown("a"), "a/x": strings.Repeat("x", tool.MaxSkillBytes)}, nil, []string{"more than 16777216 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && (strings.Contains(name, "FIFO") || strings.ContainsAny(fmt.Sprint(test.files), "@\n:")) {
				t.Skip("names that Windows has not")
			}
			folder := t.TempDir()
			write(t, folder, test.files)
			found := Read([]string{folder})
			var got []string
			for _, def := range found.Defs {
				for _, f := range tool.SkillOf(def).Files {
					got = append(got, f.URI)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("files %q, want %q", got, test.want)
			}
			for i, p := range found.Problems {
				if !p.Warning || i >= len(test.problems) || !strings.Contains(filepath.ToSlash(p.Error()), test.problems[i]) {
					t.Errorf("problem %d: %v", i, p)
				}
			}
			if len(found.Problems) != len(test.problems) {
				t.Errorf("%d problems: %v", len(found.Problems), found.Problems)
			}
		})
	}
}

func TestBoundsOfAllFolders(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, many(map[string]string{}, maxSkills+2, func(i int) (string, string) { return fmt.Sprintf("s%d/SKILL.md", i), markdown(fmt.Sprint("s", i)) }))
	found := Read([]string{folder, filepath.Join(folder, "none")})
	if len(found.Defs) != maxSkills || len(found.Watched) > maxWatched+2 || len(found.Problems) != 2 || !strings.Contains(found.Problems[0].Error(), "more than 1000 skills") || !strings.Contains(found.Problems[1].Error(), "make it, or remove it") {
		t.Errorf("%d skills, %d watched, %v", len(found.Defs), len(found.Watched), found.Problems)
	}
}

func TestFoldersTogether(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "one"), t.TempDir()
	write(t, one, map[string]string{"SKILL.md": markdown("one")})
	write(t, two, map[string]string{"one/SKILL.md": markdown("one"), "two/SKILL.md": markdown("two")})
	found := Read([]string{one, two})
	if len(found.Defs) != 2 || len(found.Problems) != 1 || !strings.Contains(found.Problems[0].Error(), "skill://one/SKILL.md is also the URI of") {
		t.Fatalf("%d skills, %v", len(found.Defs), found.Problems)
	}
	def := found.Defs[0]
	if got := string(rawjson.Member(def.Raw, "frontmatter")); got != `{"name":"one","description":"About one.","version":1.0}` {
		t.Error(got)
	}
	if !slices.Equal(def.Headings, []string{"How to one"}) || def.ID.Server != Server {
		t.Errorf("%q of %s", def.Headings, def.ID.Server)
	}
}

func TestReadingAFile(t *testing.T) {
	folder, outside := t.TempDir(), t.TempDir()
	write(t, outside, map[string]string{"secret": "same"})
	write(t, folder, map[string]string{"a/SKILL.md": markdown("a"), "a/b c.SH": "echo", "a/b.bin": "\xff\x00", "a/edited": "same", "a/linked": "same", "a/gone": "x", "a/dir/f": "same"})
	found, changed := Read([]string{folder}), 0
	read := found.Handler(func() { changed++ })(found.Defs[0])
	must.Do(t, os.WriteFile(filepath.Join(folder, "a", "edited"), []byte("SAME"), 0o644))
	for _, name := range []string{"gone", "linked", "dir/f", "dir"} {
		must.Do(t, os.Remove(filepath.Join(folder, "a", name)))
	}
	write(t, folder, map[string]string{"a/linked@": filepath.Join(outside, "secret"), "a/dir@": outside})
	write(t, outside, map[string]string{"f": "same"})
	for _, test := range []struct {
		uri, want, wrong string
		changed          int
	}{
		{"", `{"contents":[{"uri":"skill://a/SKILL.md","mimeType":"text/markdown","text":` + string(rawjson.Quote(markdown("a"))) + `}]}`, "", 0},
		{"skill://a/b%20c.SH", `{"contents":[{"uri":"skill://a/b%20c.SH","mimeType":"application/x-sh","text":"echo"}]}`, "", 0},
		{"skill://a/b.bin", `{"contents":[{"uri":"skill://a/b.bin","mimeType":"application/octet-stream","blob":"/wA="}]}`, "", 0},
		{"skill://a/../../x", "", "no file", 0},
		{"skill://b/SKILL.md", "", "no file", 0},
		{"skill://a/edited", "", `"a" has changed`, 1},
		{"skill://a/gone", "", `"a" has changed`, 1},
		{"skill://a/linked", "", `"a" has changed`, 1},
		{"skill://a/dir/f", "", `"a" has changed`, 1},
	} {
		changed = 0
		got, err := read(t.Context(), &tool.Call{Kind: tool.KindSkill, Name: test.uri})
		if string(got) != test.want || (err == nil) != (test.wrong == "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || strings.Contains(err.Error(), folder)) || changed != test.changed {
			t.Errorf("%s: %s, %v, changed %d times", test.uri, got, err, changed)
		}
	}
}
