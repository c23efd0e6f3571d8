package register

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// Group is a bundle of tools that a client reads when it needs them: a group of the draft extension
// io.modelcontextprotocol/groups (tool.ExtensionGroups).
type Group struct {
	Name         string // 1 to 64 lower-case letters, digits and single hyphens, unique
	Title        string // "" for none
	Description  string
	Instructions string // "" for none
	Tools        []*tool.Tool
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
	if v.Started != nil {
		grouped.Started = func(ctx context.Context) *Served { return v.Started(ctx).grouped() }
	}
	if v.Renewed != nil {
		grouped.Renewed = func(ctx context.Context, name string) *Served { return v.Renewed(ctx, name).grouped() }
	}
	v.Grouped = &grouped
}

func (v *Served) grouped() *Served {
	if v.Grouped != nil {
		return v.Grouped
	}
	return v
}

// to returns what is served to a party.
func (v *Served) to(party identity.Party) *Served {
	if party.Groups {
		return v.grouped()
	}
	return v
}

func declaresGroups(client *tool.Client) bool {
	return rawjson.IsObject(rawjson.Member(rawjson.Member(client.Capabilities, "extensions"), tool.ExtensionGroups))
}

// asksForGroups reads the filter of subscriptions/listen. The draft does not name a member; this one is named like the
// others.
func asksForGroups(params json.RawMessage) bool {
	return string(rawjson.Member(rawjson.Member(params, "notifications"), groupsListChanged)) == "true"
}

const groupsListChanged = "groupsListChanged"

func acknowledgedGroups(filter json.RawMessage) []byte {
	out := rawjson.NewObject(len(filter))
	out.AddAll(filter)
	out.Add(groupsListChanged, []byte("true"))
	return out.JSON()
}

// groups answers groups/list and groups/get.
func (l *Live) groups(served *Served, x *wire.Exchange, call *tool.Call, s *session) (tool.Result, error) {
	if served.Groups == nil {
		return nil, methodNotFound(x.Method)
	}
	all := served.Groups()
	var out rawjson.Object
	if x.Method == wire.MethodListGroups {
		listed := make([]json.RawMessage, len(all))
		for i, g := range all {
			listed[i] = g.listed()
		}
		out.Add("groups", rawjson.Array(listed))
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
	client := ""
	if call.Client != nil {
		client = call.Client.Name
	}
	if all[i].Instructions != "" {
		out.AddText("instructions", all[i].Instructions)
	}
	as, named := l.listedTo(served, client, s == nil, registered)
	out.Add("contents", listing("tools", tools, "", as))
	result := tool.Result(out.JSON())
	if s == nil && *named {
		result = hinted(result, 0, false)
	}
	return result, nil
}

func (g *Group) listed() json.RawMessage {
	var out rawjson.Object
	out.AddText("name", g.Name)
	if g.Title != "" {
		out.AddText("title", g.Title)
	}
	out.AddText("description", g.Description)
	return out.JSON()
}

// groupsFingerprint is equal for groups that look the same to clients, with their contents: nothing else tells a client
// that these changed.
func groupsFingerprint(all []Group) string {
	sum := sha256.New()
	for _, g := range all {
		fmt.Fprintf(sum, "%q %q %x\n", g.listed(), g.Instructions, fingerprint(g.Tools))
	}
	return string(sum.Sum(nil))
}
