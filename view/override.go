package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// original is the placeholder for the upstream's text.
const original = "{original}"

// apply returns the tool with the override's changes: t itself if nothing changes, nil if a problem is an error. Such a
// tool is not shown, because a hidden or bound parameter may be a restriction. layer binds the arguments.
func (o *Override) apply(t *tool.Tool, layer tool.Layer) (*tool.Tool, []Problem) {
	if o == nil {
		return t, nil
	}
	def := t.Def
	schema, bound, problems := bind(def, o.Parameters, o.hooked)
	if len(problems) > 0 {
		return nil, problems
	}
	name := t.Name
	if o.Name != "" && !IsGlob(o.Tool) {
		name = o.Name
	}
	raw := def.Raw
	for _, member := range []struct {
		name string
		text *string
		said string
	}{
		{"title", o.Title, def.Title},
		{"description", o.Description, def.Description},
	} {
		if member.text == nil {
			continue
		}
		if text := strings.ReplaceAll(*member.text, original, member.said); text != member.said {
			raw = set(raw, member.name, rawjson.Quote(text))
		}
	}
	if !bytes.Equal(schema, def.InputSchema) {
		raw = set(raw, "inputSchema", schema)
	}
	changed, err := redefine(t, name, raw)
	if err != nil {
		return nil, []Problem{{At: o.At, Message: err.Error()}}
	}
	if bound != nil {
		changed = changed.With(layer, bound.around)
	}
	return changed, nil
}

// redefine returns t with a new name and raw definition, or t itself if they are the same.
func redefine(t *tool.Tool, name string, raw json.RawMessage) (*tool.Tool, error) {
	next := *t
	next.Name = name
	if !bytes.Equal(raw, t.Def.Raw) {
		def, err := tool.ParseDef(t.Def.ID.Server, raw)
		if err != nil {
			return nil, fmt.Errorf("tool %s: change the definition: %w", t.Def.ID, err)
		}
		def.Sent, def.Group = t.Def.AsSent(), t.Def.Group
		next.Def = def
	}
	if next.Name == t.Name && next.Def == t.Def {
		return t, nil
	}
	return &next, nil
}

// withoutOutputSchema removes the outputSchema, because clients would check previews of results against it.
func withoutOutputSchema(t *tool.Tool) (*tool.Tool, error) {
	raw := rewrite(t.Def.Raw, func(name string, value json.RawMessage) (string, json.RawMessage, bool) {
		return name, value, name != "outputSchema"
	})
	return redefine(t, t.Name, raw)
}

// exposable matches the tool names that clients accept.
var exposable = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// metaTools are the names of meta-tools.
var metaTools = []string{
	"retrieve_tools", "call_tool", "call_tool_read", "call_tool_write", "call_tool_destructive",
	"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "list_provisioned",
	"read_output", "run_script",
}

// unusable says why a tool must not have the name, "" if it may have it. view is "" for names under a server.
func unusable(name, view string) string {
	switch {
	case !exposable.MatchString(name):
		return fmt.Sprintf("the name %q is not 1 to 64 letters, digits, _ and -", name)
	case slices.Contains(metaTools, name), view != "" && isSearchTool(name, view):
		return fmt.Sprintf("the name %q is taken by a tool of the view itself", name)
	}
	return ""
}

// isSearchTool reports whether the name may belong to a meta-tool of a search view, for the view or one of its servers.
func isSearchTool(name, view string) bool {
	rest, ours := strings.CutPrefix(name, view+"_")
	return ours && slices.ContainsFunc([]string{"search_tools", "describe_tool", "call_tool"}, func(last string) bool {
		return rest == last || strings.HasSuffix(rest, "_"+last)
	})
}

type claims struct {
	view  string
	proxy string // name of the proxy tool; "" without a proxy tool
	taken map[string]claim
}

type claim struct {
	by tool.ID
	at Place
}

// claim takes the configured name of a tool. Tools without a configured name get a free name later.
func (c *claims) claim(t *tool.Tool, at Place) []Problem {
	if t.Name == "" {
		return nil
	}
	why := unusable(t.Name, c.view)
	if t.Name == c.proxy {
		why = fmt.Sprintf("the name %q is the proxy tool's", t.Name)
	}
	if why != "" {
		return []Problem{{At: at, Message: fmt.Sprintf("tool %s: %s", t.Def.ID, why), Hint: "choose another name"}}
	}
	if first, taken := c.taken[t.Name]; taken {
		return []Problem{{
			At:      cmp.Or(at, first.at),
			Message: fmt.Sprintf("%s and %s are both named %q", first.by, t.Def.ID, t.Name),
			Hint:    "rename one of them; the second is left out",
		}}
	}
	if c.taken == nil {
		c.taken = map[string]claim{}
	}
	c.taken[t.Name] = claim{t.Def.ID, at}
	return nil
}

// set is rawjson.Set for objects.
func set(object []byte, name string, value []byte) []byte {
	out, err := rawjson.Set(object, name, value)
	if err != nil { // not an object
		return object
	}
	return out
}

// rewrite calls change for every member of an object. change returns the new name and value, and whether the member
// stays. Values keep their bytes; white space between members is lost. Without a change, the object itself is returned.
func rewrite(object []byte, change func(name string, value json.RawMessage) (string, json.RawMessage, bool)) []byte {
	out := rawjson.NewObject(len(object))
	changed := false
	for name, value := range rawjson.Members(object) {
		newName, newValue, stays := change(name, value)
		changed = changed || !stays || newName != name || !bytes.Equal(newValue, value)
		if stays {
			out.Add(newName, newValue)
		}
	}
	if !changed {
		return object
	}
	return out.JSON()
}
