package served

import (
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
	const word = "word-shop|Word Shop|Be quiet. Its tools are about book, lend, sell.|Be quiet. Always.|find_book lend_book sell_book\n"
	const food = "food||All you eat. Its tools are about sell, bread, milk.||sell_bread sell_milk\n"
	for name, test := range map[string]struct {
		change func(c *configs.Config)
		want   string // "": no groups
	}{
		"off":     {func(c *configs.Config) { c.Groups = "off" }, ""},
		"gated":   {func(c *configs.Config) { c.Gating = &view.Gating{} }, ""},
		"servers": {func(*configs.Config) {}, word + food},
		"pinned":  {func(c *configs.Config) { c.Pinned = []string{"Word Shop.*"} }, food},
		"policies": {func(c *configs.Config) {
			c.Policies, _ = policy.Compile([]policy.Text{{Cedar: `permit (principal, action, resource); forbid (principal, action, resource) when { resource.server == "food" };`}})
		}, word},
		"views": {func(c *configs.Config) { c.Views = []view.Settings{only("food"), only("Word Shop")} },
			strings.Replace(food, "All you eat", "Tools of food", 1) + strings.Replace(word, "Be quiet. Its", "Tools of Word Shop. Its", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(nil, "Word Shop", "food", "none")
			config.Servers[1].Description, config.Groups = "All you eat", configs.GroupsOn
			test.change(config)
			bench := newBench(t)
			bench.clients = true
			shown := bench.build(Input{Config: config, Listings: listings}).Views[0].As(identity.Party{}).Shown
			got := ""
			if shown.Grouped != nil {
				for _, g := range shown.Grouped.Groups() {
					var tools []string
					for _, t := range g.Tools {
						tools = append(tools, t.Def.ID.Name)
					}
					got += strings.Join([]string{g.Name, g.Title, g.Description, g.Instructions, strings.Join(tools, " ")}, "|") + "\n"
				}
				if pinned := len(shown.Grouped.Pinned()); pinned != 3*len(config.Pinned) {
					t.Errorf("%d tools are pinned", pinned)
				}
			}
			if got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}
