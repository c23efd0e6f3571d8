package retrieve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestResourcesInDirectoriesOfSkills(t *testing.T) {
	skills := directoriesOf([]tool.ID{{Name: "skill://a%7Eb/refunds/SKILL.md"}, {Name: "skill://a~b/refunds/nested/SKILL.md"}, {Name: "git://X/tags/SKILL.md"}})
	for uri, want := range map[string]int{
		"skill://a~b/refunds/SKILL.md": 1, "skill://a%7eb/refunds/x": 1, "skill://A~B/Refunds/x": 1, "skill://a~b/refunds/%53KILL.md": 1, `skill://a~b/refunds\x`: 1,
		"skill://a~b/refunds/nested/x": 2, "git://x/tags/a/b": 1, "skill://a~b/other/../refunds/x": 1,
		"skill://a~b/refunds": 0, "skill://a~b/refundsx/y": 0, "skill://a~b/x": 0, "note:x": 0,
	} {
		around := skills.around(uri)
		slices.SortFunc(around, func(a, b tool.ID) int { return strings.Compare(a.Name, b.Name) })
		if got := len(slices.Compact(around)); got != want {
			t.Errorf("%s lies in %d skills, want %d", uri, got, want)
		}
	}
}

// A stranger's server may list many skills and many resources: a catalog of them is made in time that grows with their number.
func BenchmarkSkillsBesideResources(b *testing.B) {
	for _, n := range []int{1000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var tools []*tool.Tool
			for i := range n {
				uri := fmt.Sprintf("skill://acme/s%d", i)
				for kind, raw := range map[tool.Kind]string{
					tool.KindSkill:    fmt.Sprintf(`{"uri":"%s/SKILL.md","frontmatter":{"name":"s%d","description":"x"},"resources":"dynamic"}`, uri, i),
					tool.KindResource: fmt.Sprintf(`{"uri":"%s/SKILL.md","name":"x"}`, uri),
				} {
					tools = append(tools, &tool.Tool{Def: must.Get(tool.ParseKind(kind, "acme", []byte(raw)))(b)})
				}
			}
			contents := Contents{Servers: []Server{{Name: "acme", Tools: tools, Skills: SkillsOf(tools)}}}
			for b.Loop() {
				newNonTools(contents, nil, nil)
			}
		})
	}
}
