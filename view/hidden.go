package view

import (
	"slices"

	"toolfinch/tool"
)

// HiddenBy returns the override under a server that hides the server's tool from all views: the exact name, or a glob.
// It returns nil for a tool that is not hidden.
func HiddenBy(overrides []Override, name string) *Override {
	if by := ChosenBy(overrides, name); by != nil && by.Disabled {
		return by
	}
	return nil
}

// ChosenBy returns the override under a server that decides about the server's tool: the exact name, or a glob. It
// returns nil for a tool without an override.
func ChosenBy(overrides []Override, name string) *Override {
	of := []*tool.Tool{{Def: &tool.Def{ID: tool.ID{Kind: tool.KindTool, Name: name}}}}
	return choices(of, overrides)[0].by
}

// Hidden reports whether the servers' settings hide a tool from all views.
func Hidden(servers []UpstreamTools, id tool.ID) bool {
	at := slices.IndexFunc(servers, func(s UpstreamTools) bool { return s.Name == id.Server })
	return at >= 0 && id.Kind == tool.KindTool && HiddenBy(servers[at].Tools, id.Name) != nil
}
