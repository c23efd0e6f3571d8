package register

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// skills answers the methods of the extension for skills (SEP-2640): skills/list, skills/get and
// resources/directory/read.
func skills(served *Served, x *wire.Exchange) (tool.Result, error) {
	declared := served.Declared.Extensions[tool.ExtensionSkills]
	uri := rawjson.Text(rawjson.Member(x.Params, "uri"))
	switch {
	case declared == nil:
		return nil, methodNotFound(x.Method)
	case x.Method == wire.MethodListSkills:
		return listPage(served, x)
	case x.Method == wire.MethodReadDirectory && string(rawjson.Member(declared, "directoryRead")) == "true":
		return readDirectory(served, uri)
	case x.Method == wire.MethodReadDirectory:
		return nil, methodNotFound(x.Method)
	}
	all := served.Items(tool.KindSkill)
	at := slices.IndexFunc(all, func(t *tool.Tool) bool { return t.Name == uri })
	if at < 0 {
		return nil, notFound(tool.KindSkill, uri, served.hint(&tool.Call{Kind: tool.KindSkill, Name: uri}), true)
	}
	var out rawjson.Object
	out.Add("skill", all[at].Listed())
	return tool.Result(out.JSON()), nil
}

// directory is the media type of a directory.
const directory = "inode/directory"

// readDirectory answers resources/directory/read for a directory of a skill, from the skill's entry.
func readDirectory(served *Served, uri string) (tool.Result, error) {
	found := map[string]json.RawMessage{}
	for _, t := range served.Items(tool.KindSkill) {
		if root := strings.TrimSuffix(t.Name, tool.SkillFile); uri != root && !strings.HasPrefix(uri, root+"/") {
			continue
		}
		entry, err := tool.ParseKind(tool.KindSkill, t.Def.ID.Server, t.Listed())
		if err != nil {
			continue
		}
		for _, file := range tool.SkillOf(entry).Files {
			below, inside := strings.CutPrefix(file.URI, uri+"/")
			if !inside {
				continue
			}
			name, _, isDirectory := strings.Cut(below, "/")
			var item rawjson.Object
			item.AddText("uri", uri+"/"+name)
			item.AddText("name", tool.UnescapeURI(name))
			switch {
			case isDirectory:
				item.AddText("mimeType", directory)
			case path.Ext(name) == ".md":
				item.AddText("mimeType", "text/markdown")
			}
			if file.Size != nil && !isDirectory {
				item.Add("size", strconv.AppendInt(nil, *file.Size, 10))
			}
			found[name] = item.JSON()
		}
	}
	if len(found) == 0 {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: strconv.Quote(rawjson.Clip(uri, 200)) + " is no directory of a skill"}
	}
	names := slices.Sorted(maps.Keys(found))
	items := make([]json.RawMessage, len(names))
	for i, name := range names {
		items[i] = found[name]
	}
	var out rawjson.Object
	out.Add("resources", rawjson.Array(items))
	return tool.Result(out.JSON()), nil
}
