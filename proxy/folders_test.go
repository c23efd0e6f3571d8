package proxy_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/view"
)

// Skills of folders are there beside those of servers. What changes in a folder reaches clients: if it is seen, or when
// a file is read.
func TestSkillsOfFolders(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(folder, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("team/flow/SKILL.md", "---\nname: flow\ndescription: How branches are merged here\n---\n# Merge\n")
	write("team/flow/rules.md", "Squash.\n")
	write("broken/SKILL.md", "# No frontmatter\n")
	some := view.Settings{Name: "some", Exposure: view.ExposureRetrieve, Skills: []view.SkillPattern{{Pattern: view.Pattern{Glob: "skills.*/flow/*"}, Under: "git"}}}
	config := configOf(t, []*script{newLibrary(t, "shop", kind{}).script}, everything("all", view.ExposureRetrieve), some)
	config.Skills = []string{folder}
	p, url := openViews(t, "", config)
	changed := must.Get(configs.Watch(t.Context(), p.Modules, slog.New(slog.DiscardHandler)))(t)
	all, one := viewClient(t, p, url, "all", false), viewClient(t, p, url, "some", true)
	check := func(c *rawClient, asks map[string]string) {
		t.Helper()
		for ask, want := range asks {
			name, params, _ := strings.Cut(ask, " ")
			if got := c.ask(name, params); !strings.Contains(got.raw, want) {
				t.Errorf("%s: lacks %s: %s", ask, want, got.raw)
			}
		}
	}
	check(all, map[string]string{
		`skills/list {}`: `"uri":"skill://skills/team/flow/SKILL.md","frontmatter":{"name":"flow","description":"How branches are merged here"}`, `skills/get {"uri":"skill://shop/acme/refunds/SKILL.md"}`: "Pay customers back",
		`resources/read {"uri":"skill://skills/team/flow/rules.md"}`:                                 `{"uri":"skill://skills/team/flow/rules.md","mimeType":"text/markdown","text":"Squash.\n"}`,
		`tools/call {"name":"read_skill","arguments":{"uri":"flow"}}`:                                "# Merge",
		`tools/call {"name":"retrieve_tools","arguments":{"query":"merge a branch","kind":"skill"}}`: "skill://skills/team/flow/SKILL.md",
		`resources/read {"uri":"skill://skills/team/flow/../../broken/SKILL.md"}`:                    "error",
		`resources/read {"uri":"skill://skills/broken/SKILL.md"}`:                                    "error",
	})
	check(one, map[string]string{
		`skills/list {}`: `"skills":[{"uri":"skill://git/flow/SKILL.md"`, `resources/read {"uri":"skill://git/flow/rules.md"}`: `"uri":"skill://git/flow/rules.md"`,
		`skills/get {"uri":"skill://shop/acme/refunds/SKILL.md"}`: "-32602", `resources/read {"uri":"skill://skills/team/flow/rules.md"}`: "error",
	})
	if problems := p.Problems(); len(problems) != 1 || !strings.Contains(problems[0].Error(), "broken") {
		t.Errorf("problems: %v", problems)
	}

	told := len(all.got("notifications/resources/list_changed"))
	write("new/SKILL.md", "---\nname: new\ndescription: New\n---\n")
	await.Value(t, changed)
	reload(t, p, config)
	eventually(t, func() bool { return len(all.got("notifications/resources/list_changed")) > told })
	check(all, map[string]string{`skills/get {"uri":"skill://skills/new/SKILL.md"}`: `"New"`})

	write("team/flow/rules.md", "Rebase.\n") // and nobody has seen it yet
	check(all, map[string]string{`resources/read {"uri":"skill://skills/team/flow/rules.md"}`: `has changed since it was listed`})
	eventually(t, func() bool {
		return strings.Contains(all.ask("resources/read", `{"uri":"skill://skills/team/flow/rules.md"}`).raw, "Rebase.")
	})
}
