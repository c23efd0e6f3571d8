package served

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/trust/policy"
	"toolfinch/view"
)

func TestNamesOfGroupsAreValid(t *testing.T) {
	long := strings.Repeat("ab.", 30)
	got := groupNames([]string{"Git Hub", "git_hub", "git-hub-2", "git.hub", "über--x ", "日本", "!", long, long})
	want := []string{"git-hub", "git-hub-2", "git-hub-2-2", "git-hub-3", "ber-x", "group", "group-2", strings.Repeat("ab-", 21) + "a", strings.Repeat("ab-", 20) + "ab-2"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Each server is a group, or each view where the root combines views. What is pinned is in none, nor what the party may
// not use, and a group without tools is none.
func TestGroupsOfAView(t *testing.T) {
	words := selling(t, "Word Shop", "find_book", "sell_book", "lend_book")
	words.Instructions = "Be quiet. Always."
	listings := map[string]Listing{"Word Shop": words, "food": selling(t, "food", "sell_bread", "sell_milk"), "none": selling(t, "none")}
	const word = "word-shop (Word Shop) Be quiet. Its tools are about book, lend, sell. [Be quiet. Always.] find_book lend_book sell_book"
	const food = "food () All you eat. Its tools are about sell, bread, milk. [] sell_bread sell_milk"
	for name, test := range map[string]struct {
		change func(c *configs.Config)
		want   string // "off": no groups
	}{
		"off":     {func(c *configs.Config) { c.Groups = configs.GroupsOff }, "off"},
		"gated":   {func(c *configs.Config) { c.Gating = &view.Gating{} }, "off"},
		"servers": {func(*configs.Config) {}, word + "\n" + food},
		"pinned":  {func(c *configs.Config) { c.Pinned = []string{"Word Shop.*"} }, food},
		"policies": {func(c *configs.Config) {
			c.Policies, _ = policy.Compile([]policy.Text{{Cedar: `permit (principal, action, resource); forbid (principal, action, resource) when { resource.server == "food" };`}})
		}, word},
		"views": {func(c *configs.Config) {
			c.Views = []view.Settings{only("food"), only("Word Shop")}
			c.Views[0].Description = "Eat"
		}, `food () Eat. Its tools are about sell, bread, milk. [] sell_bread sell_milk
word-shop (Word Shop) Its tools are about book, lend, sell. [Servers behind it:
- Word Shop

Instructions of Word Shop:
Be quiet. Always.] find_book lend_book sell_book`},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(nil, "Word Shop", "food", "none")
			config.Servers[1].Description, config.Groups = "All you eat", configs.GroupsOn
			test.change(config)
			bench := newBench(t)
			bench.clients = true
			shown := bench.build(Input{Config: config, Listings: listings}).Views[0].As(identity.Party{}).Shown
			if shown.Grouped == nil {
				if test.want != "off" {
					t.Error("there are no groups")
				}
				return
			}
			var all []string
			for _, g := range shown.Grouped.Groups() {
				line := fmt.Sprintf("%s (%s) %s [%s]", g.Name, g.Title, g.Description, g.Instructions)
				for _, tool := range g.Tools {
					line += " " + tool.Def.ID.Name
				}
				all = append(all, line)
			}
			if got := strings.Join(all, "\n"); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if shown.Grouped.Direct != nil || len(shown.Grouped.Pinned()) != len(config.Pinned)*3 {
				t.Errorf("%d tools are pinned", len(shown.Grouped.Pinned()))
			}
		})
	}
}
