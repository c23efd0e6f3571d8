package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/tool"
)

func TestSkillsOfAView(t *testing.T) {
	of := func(server string, uris ...string) Upstream {
		u := Upstream{Server: server, Listed: true}
		for _, uri := range uris {
			root := strings.TrimSuffix(uri, tool.SkillFile)
			raw := fmt.Sprintf(`{"uri":%q,"frontmatter":{"name":%q,"description":"d"},"resources":"dynamic"}`, uri, root[strings.LastIndex(root, "/")+1:])
			def, _, err := tool.TakeIn(tool.KindSkill, server, []byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			u.Tools = append(u.Tools, &tool.Tool{Def: def})
		}
		return u
	}
	base := []Upstream{of("skills", "skill://git-a/SKILL.md", "skill://git-b/SKILL.md", "skill://x/y/SKILL.md"), of("acme", "skill://git-a/SKILL.md")}
	glob := func(glob, under string) SkillPattern { return SkillPattern{Pattern{Glob: glob}, under} }
	for name, test := range map[string]struct {
		settings Settings
		want     []string // ID, and the name if the view gives one
		problem  string
	}{
		"none":                   {Settings{}, nil, ""},
		"all":                    {Settings{IncludeAll: true}, []string{"skills.skill://git-a/SKILL.md", "skills.skill://git-b/SKILL.md", "skills.skill://x/y/SKILL.md", "acme.skill://git-a/SKILL.md"}, ""},
		"all but":                {Settings{IncludeAll: true, Exclude: []Pattern{{Glob: "skills.skill://git-a/*"}, {Glob: "acme.*"}}}, []string{"skills.skill://git-b/SKILL.md", "skills.skill://x/y/SKILL.md"}, ""},
		"named":                  {Settings{Skills: []SkillPattern{glob("skills.skill://git-*/SKILL.md", "")}}, []string{"skills.skill://git-a/SKILL.md", "skills.skill://git-b/SKILL.md"}, ""},
		"named, but":             {Settings{Skills: []SkillPattern{glob("*", "")}, Exclude: []Pattern{{Glob: "skills.*"}}}, []string{"acme.skill://git-a/SKILL.md"}, ""},
		"under; the last counts": {Settings{Skills: []SkillPattern{glob("skills.*", "a"), glob("skills.skill://x/*", "billing/eu")}}, []string{"skills.skill://git-a/SKILL.md skill://a/git-a/SKILL.md", "skills.skill://git-b/SKILL.md skill://a/git-b/SKILL.md", "skills.skill://x/y/SKILL.md skill://billing/eu/y/SKILL.md"}, ""},
		"of all, one under":      {Settings{IncludeAll: true, Exclude: []Pattern{{Glob: "skills.skill://git*"}}, Skills: []SkillPattern{glob("acme.*", "a")}}, []string{"skills.skill://x/y/SKILL.md", "acme.skill://git-a/SKILL.md skill://a/git-a/SKILL.md"}, ""},
		"two in one place":       {Settings{Skills: []SkillPattern{glob("*git-a/*", "a")}}, []string{"skills.skill://git-a/SKILL.md skill://a/git-a/SKILL.md"}, "acme.skill://git-a/SKILL.md is left out: skills.skill://git-a/SKILL.md has its URI, skill://a/git-a/SKILL.md"},
		"in place of another's":  {Settings{IncludeAll: true, Exclude: []Pattern{{Glob: "*x*"}, {Glob: "*git-b*"}}, Skills: []SkillPattern{glob("skills.*", "acme")}}, []string{"skills.skill://git-a/SKILL.md skill://acme/git-a/SKILL.md"}, "acme.skill://git-a/SKILL.md is left out"},
		"nothing":                {Settings{Skills: []SkillPattern{glob("skills.z*", "")}}, nil, `nothing matches "skills.z*"`},
	} {
		v, problems := Compile(test.settings, base, Env{})
		var got []string
		for _, u := range v.Upstreams {
			for _, t := range u.Tools {
				got = append(got, strings.TrimSpace(t.Def.ID.String()+" "+t.Name))
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
		if len(problems) > 1 || (len(problems) == 1) != (test.problem != "") || test.problem != "" && !strings.Contains(problems[0].Message, test.problem) {
			t.Errorf("%s: %v", name, problems)
		}
	}
}
