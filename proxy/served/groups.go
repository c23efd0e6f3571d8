package served

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// tellingWords is how many words of its tools a group's description has.
const tellingWords = 8

// group serves clients that declare the groups extension a group for each server of a view, or for each view that it
// combines. A gated view has none: its clients are listed what they provision.
func (b *builder) group(next plan) {
	v := next.View
	if b.Config.Groups != configs.GroupsOn || v.Settings.Gating != nil {
		return
	}
	source := register.Source(v.Catalog)
	if v.lists { // the tools of direct views are pinned where clients have no groups
		source = globbed{v.Catalog, v.Catalog.Globbed()}
	}
	config, pinned := b.Config, source.Pinned()
	v.Shown.Group(source, sync.OnceValue(func() []register.Group { return v.groups(config, next.combines, pinned) }))
}

// globbed is a catalog whose pinned tools are those of the configuration alone.
type globbed struct {
	*retrieve.Catalog
	pinned []*tool.Tool
}

func (g globbed) Pinned() []*tool.Tool { return g.pinned }

// groups returns the groups of a view that have tools beside the pinned ones.
func (v *View) groups(config *configs.Config, combines bool, pinned []*tool.Tool) (all []register.Group) {
	of := func(t *tool.Tool) string { return t.Def.ID.Server }
	var titles, about []string // of the whole view, so that names do not depend on the party
	if combines {
		of = func(t *tool.Tool) string { return t.View }
		for _, view := range config.Views {
			titles, about = append(titles, view.Name), append(about, view.Description)
		}
	} else {
		for _, s := range cmp.Or(v.Whole, v).Contents.Servers {
			titles, about = append(titles, s.Name), append(about, cmp.Or(s.Description, strings.TrimLeft(s.Instructions, "# ")))
		}
	}
	tools := map[string][]*tool.Tool{}
	servers := map[[2]string]bool{} // title and server
	for _, t := range v.Catalog.Tools() {
		if !slices.Contains(pinned, t) {
			tools[of(t)], servers[[2]string{of(t), t.Def.ID.Server}] = append(tools[of(t)], t), true
		}
	}
	names, words := groupNames(titles), v.Catalog.Telling(tools, tellingWords)
	for i, title := range titles {
		if tools[title] == nil {
			continue
		}
		g := register.Group{Name: names[i], Description: retrieve.Sentence(cmp.Or(about[i], "Tools of "+title)), Tools: tools[title]}
		if title != g.Name {
			g.Title = title
		}
		if len(words[title]) > 0 {
			g.Description += " Its tools are about " + strings.Join(words[title], ", ") + "."
		}
		for _, s := range v.Contents.Servers {
			if servers[[2]string{title, s.Name}] && s.Instructions != "" {
				g.Instructions = strings.TrimSpace(g.Instructions + "\n\n" + s.Instructions)
			}
		}
		all = append(all, g)
	}
	return all
}

// maxGroupName bounds the name of a group, as the extension does.
const maxGroupName = 64

// groupNames makes names of groups: lower-case letters, digits and single hyphens. A name that an earlier group has
// gets a number.
func groupNames(titles []string) []string {
	names := make([]string, len(titles))
	for i, title := range titles {
		words := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
		base := cut(cmp.Or(strings.Join(words, "-"), "group"), maxGroupName)
		names[i] = base
		for n := 2; slices.Contains(names[:i], names[i]); n++ {
			suffix := "-" + strconv.Itoa(n)
			names[i] = cut(base, maxGroupName-len(suffix)) + suffix
		}
	}
	return names
}

func cut(name string, most int) string {
	return strings.TrimRight(name[:min(len(name), most)], "-")
}
