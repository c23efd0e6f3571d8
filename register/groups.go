package register

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// Group is a bundle of tools that a client reads when it needs them: a group of tool.ExtensionGroups.
type Group struct {
	Name         string       `json:"name"` // 1 to 64 lower-case letters, digits and single hyphens, unique
	Title        string       `json:"title,omitempty"`
	Description  string       `json:"description"`
	Instructions string       `json:"-"` // "" for none
	Tools        []*tool.Tool `json:"-"`
}

// kindGroup is the key of groups in fingerprints.
const kindGroup tool.Kind = "group"

// Group serves clients that declare groups a list of groups, and never the list of every tool. source is as v's, with
// the pinned tools of these clients.
func (v *Served) Group(source Source, groups func() []Group) {
	grouped := *v
	grouped.Source, grouped.Groups, grouped.Direct, grouped.Beside = source, groups, nil, nil
	grouped.Declared.Extensions = map[string]json.RawMessage{tool.ExtensionGroups: json.RawMessage(`{"listChanged":true}`)}
	maps.Copy(grouped.Declared.Extensions, v.Declared.Extensions)
	v.Grouped = &grouped
}

// to returns what is served to a client that declares groups, or to another.
func (v *Served) to(groups bool) *Served {
	if groups && v.Grouped != nil {
		return v.Grouped
	}
	return v
}

// groups answers groups/list and groups/get.
func (l *Live) groups(served *Served, x *wire.Exchange, call *tool.Call, s *session) (tool.Result, error) {
	if served.Groups == nil {
		return nil, methodNotFound(x.Method)
	}
	all := served.Groups()
	var out rawjson.Object
	if x.Method == wire.MethodListGroups {
		out.Add("groups", rawjson.Of(append([]Group{}, all...))) // no null
		return tool.Result(out.JSON()), nil
	}
	i := slices.IndexFunc(all, func(g Group) bool { return g.Name == call.Name })
	if i < 0 {
		return nil, &tool.RPCError{Code: tool.CodeResourceNotFound, Message: fmt.Sprintf("unknown group %.100q", call.Name)}
	}
	var registered Set
	if own := l.sessionFor(call); own != nil {
		l.recall(served, call, own)
		own.mu.Lock()
		registered, _, _ = own.set.sync(served.Lookup)
		own.mu.Unlock()
	}
	listed := map[string]bool{} // a tool is listed or in groups, never both
	for _, t := range l.toolsFor(served, call, s, registered) {
		listed[t.Name] = true
	}
	tools := slices.DeleteFunc(slices.Clone(all[i].Tools), func(t *tool.Tool) bool { return listed[t.Name] })
	if all[i].Instructions != "" {
		out.AddText("instructions", all[i].Instructions)
	}
	as, named := l.listedTo(served, call.Client.Name, s == nil, registered)
	out.Add("contents", listing("tools", tools, "", as))
	result := tool.Result(out.JSON())
	if s == nil && *named {
		result = hinted(result, 0, false)
	}
	return result, nil
}

// groupsFingerprint is equal for groups that look the same, with their contents: nothing else tells that these changed.
func groupsFingerprint(all []Group) string {
	sum := sha256.New()
	for _, g := range all {
		fmt.Fprintf(sum, "%s %q %q\n", rawjson.Of(g), g.Instructions, fingerprint(g.Tools))
	}
	return string(sum.Sum(nil))
}
