package served

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"toolfinch/configs"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/view"
)

// planRoot plans the view that combines the other views: each tool is the one that
// its view has, with all that is around it there. Gated views stay apart, because what
// their clients provision is theirs.
func (b *builder) planRoot() plan {
	config, next := b.Config, b.next
	same := b.before.ByName[view.Default]
	changed := slices.ContainsFunc(next.Views, func(v *View) bool { return b.before.ByName[v.Name] != v })
	if same != nil && b.before.Config == config && !changed {
		return plan{View: same, same: true}
	}
	open := slices.DeleteFunc(slices.Clone(next.Views), gatedView)
	v := b.newView(settingsTogether(config, open, next.Views))
	compiled := &view.Compiled{Settings: v.Settings, Meta: metaTogether(open)}
	var parts []retrieve.ViewCatalog
	for _, one := range open {
		compiled.Upstreams = append(compiled.Upstreams, one.compiled.Upstreams...)
		listed := one.Settings.Exposure == view.ExposureDirect
		v.lists = v.lists || listed
		parts = append(parts, retrieve.ViewCatalog{View: one.Name, Catalog: one.Catalog, Listed: listed})
	}
	root := b.planView(v, compiled, nil)
	root.together = true
	for _, one := range open {
		v.combined = append(v.combined, one.Name)
	}
	v.searches = searchesTogether(open)
	if v.Settings.Exposure == view.ExposureSearch {
		if root.find = ""; len(v.searches) == 1 {
			root.find = retrieve.SearchName(v.searches[0].prefix)
		}
	}
	var renamed []retrieve.Displaced
	v.Contents, renamed = retrieve.Combine(parts, b.reservedIn(v))
	v.Contents.Pins, root.offer.About = config.Pinned, v.Contents.Servers
	if v.problems = clashCombined(renamed); len(open) == 0 {
		v.problems = []view.Problem{{
			View: view.Default, Warning: true,
			Message: "the root serves nothing: every view is gated or left out", Hint: "clients name a view, or default_view names what the root serves",
		}}
	}
	return root
}

func gatedView(v *View) bool { return v.Settings.Gating != nil }

// settingsTogether are those of the view that serves others together, as if it had been
// configured. all are these and the gated ones.
func settingsTogether(config *configs.Config, views, all []*View) view.Settings {
	together := view.Settings{Name: view.Default, ProxyTool: config.ProxyTool, Exposure: exposureTogether(views)}
	var about []string
	for _, v := range views {
		if v.Settings.Description != "" {
			about = append(about, v.Name+": "+v.Settings.Description)
		}
		together.DirectBelow = max(together.DirectBelow, v.Settings.DirectBelow)
		if v.Settings.IncludeAll && !together.IncludeAll {
			together.IncludeAll, together.Exclude, together.Tools = true, v.Settings.Exclude, v.Settings.Tools
		}
	}
	if len(views) == 0 {
		about = []string{"No tools are served here. There are " + Addresses(all) + "."}
	}
	together.Description = strings.Join(about, "\n")
	return together
}

// exposureTogether is how tools that no direct or search view has reach clients. Where
// there are none of these, nothing but these has a place in the list.
func exposureTogether(views []*View) view.Exposure {
	has := map[view.Exposure]bool{}
	for _, v := range views {
		has[cmp.Or(v.Settings.Exposure, view.ExposureAuto)] = true
	}
	search := has[view.ExposureSearch] || has[view.ExposureSearchPerServer]
	switch {
	case has[view.ExposureRetrieve], has[view.ExposureAuto] && search:
		return view.ExposureRetrieve
	case has[view.ExposureAuto]:
		return view.ExposureAuto
	case search:
		return view.ExposureSearch
	}
	return view.ExposureDirect
}

// metaTogether are the views' own meta-tools: run_script, after the view's name where
// several have it.
func metaTogether(views []*View) (all []*tool.Tool) {
	count := map[string]int{}
	for _, v := range views {
		for _, t := range v.compiled.Meta {
			count[t.Name]++
		}
	}
	for _, v := range views {
		for _, t := range v.compiled.Meta {
			if count[t.Name] > 1 {
				named := *t
				named.Name = v.Name + "_" + t.Name
				t = &named
			}
			all = append(all, t)
		}
	}
	return all
}

// searchesTogether are the search tools of all views, those of a server that several
// views search after the view's name.
func searchesTogether(views []*View) (all []searchTools) {
	count := map[string]int{}
	for _, v := range views {
		for _, one := range v.searches {
			count[retrieve.SearchName(one.prefix)]++
		}
	}
	for _, v := range views {
		for _, one := range v.searches {
			if count[retrieve.SearchName(one.prefix)] > 1 && one.prefix != v.Name {
				one.prefix = v.Name + "_" + one.prefix
			}
			all = append(all, one)
		}
	}
	return all
}

// clashCombined is the problem of names that several views gave.
func clashCombined(renamed []retrieve.Displaced) []view.Problem {
	if len(renamed) == 0 {
		return nil
	}
	const shown = 5
	var clashes []string
	for _, r := range renamed[:min(len(renamed), shown)] {
		clashes = append(clashes, fmt.Sprintf("%s (%s)", r.Name, strings.Join(r.As, ", ")))
	}
	if more := len(renamed) - shown; more > 0 {
		clashes = append(clashes, fmt.Sprintf("and %d more", more))
	}
	return []view.Problem{{
		View: view.Default, Warning: true,
		Message: "several views, or a view and toolfinch itself, have tools of one name, which have another one at the root: " + strings.Join(clashes, ", "),
		Hint:    "give them other names, or say what the root serves: default_view",
	}}
}

// AboutRoot says which views are combined at the root.
func (s *Served) AboutRoot() string {
	var together, apart []string
	for _, v := range s.Views {
		switch {
		case v.Name == view.Default:
		case gatedView(v):
			apart = append(apart, v.Name)
		default:
			together = append(together, v.Name)
		}
	}
	text := "nothing"
	if len(together) > 0 {
		text = "the views together, each tool through its own: " + strings.Join(together, ", ")
	}
	if len(apart) > 0 {
		text += "; not " + strings.Join(apart, ", ") + ": gated, and served at an address of its own"
	}
	return text
}
