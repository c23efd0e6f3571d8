package retrieve

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// skills are the skills of a catalog by the URI of the directory that clients see.
type skills map[string]*tool.Tool

// add adds a skill, and returns it as clients see it; nil if another one has its URI.
func (s skills) add(brought *tool.Tool) *tool.Tool {
	id := brought.Def.ID
	t := renamed(brought, cmp.Or(brought.Name, skillURI(id)))
	root := skillRoot(t.Name)
	if s[root] != nil {
		return nil
	}
	s[root] = t.With(tool.LayerNames, exposeFiles(root, skillRoot(id.Name)))
	return s[root]
}

// exposeFiles exchanges the URIs of a skill's files for those that clients know, which begin with another root.
func exposeFiles(root, own string) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			file, inside := strings.CutPrefix(call.Name, root+"/")
			if !inside {
				return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "not a file of the skill"}
			}
			inner := *call
			inner.Name = own + "/" + file
			result, err := next(ctx, &inner)
			if err != nil {
				return result, err
			}
			return contentsOf(result, call.Name)
		}
	}
}

// contentsOf returns the contents of a file under a URI.
func contentsOf(result tool.Result, uri string) (tool.Result, error) {
	if rawjson.Member(json.RawMessage(result), "contents") == nil { // the server asks for input first
		return result, nil
	}
	contents, err := rawjson.Update(json.RawMessage(result), "contents", func(all json.RawMessage) []byte {
		var exposed []json.RawMessage
		for item := range rawjson.Elements(all) {
			item, _ = rawjson.Update(item, "uri", func(json.RawMessage) []byte { return rawjson.Quote(uri) })
			exposed = append(exposed, item)
		}
		return rawjson.Array(exposed)
	})
	return tool.Result(contents), err
}

// asResource returns a resource that is read as the file of a skill that it also is.
func asResource(t, file *tool.Tool) *tool.Tool {
	t = renamed(t, t.Name)
	t.Handler = func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		inner := *call
		inner.Name = file.Name
		result, err := file.Handler(ctx, &inner)
		if err != nil {
			return result, err
		}
		return contentsOf(result, call.Name)
	}
	return t
}

// file finds the skill that a client's URI is a file of, under that URI. It is nil for a file that the skill does
// not have; isSkill says that the URI lies in a skill's directory.
func (s skills) file(uri string) (t *tool.Tool, isSkill bool) {
	if len(s) == 0 || len(uri) > maxMatchedURI {
		return nil, false
	}
	for root := uri; ; {
		i := strings.LastIndexByte(root, '/')
		if i <= 0 {
			return nil, isSkill
		}
		root = root[:i]
		skill := s[root]
		if skill == nil {
			continue
		}
		isSkill = true
		if _, has := tool.SkillOf(skill.Def).File(skillRoot(skill.Def.ID.Name) + uri[len(root):]); has {
			return renamed(skill, uri), true
		}
	}
}

// within reports whether a resource lies in the directory of one of the skills, however its URI is spelt, and whether
// has reports one of these skills.
func within(resource string, all []tool.ID, has func(tool.ID) bool) (is, some bool) {
	if len(all) == 0 {
		return false, false
	}
	for _, spelling := range tool.Spellings(resource) {
		spelling = strings.ToLower(spelling)
		for _, skill := range all {
			if strings.HasPrefix(spelling, strings.ToLower(skillRoot(skill.Name))+"/") {
				is, some = true, some || has(skill)
			}
		}
	}
	return is, some
}

// SkillsOf returns the IDs of the skills among definitions.
func SkillsOf(tools []*tool.Tool) (skills []tool.ID) {
	for _, t := range tools {
		if t.Def.ID.Kind == tool.KindSkill {
			skills = append(skills, t.Def.ID)
		}
	}
	return slices.Clip(skills)
}
