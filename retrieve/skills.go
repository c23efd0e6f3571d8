package retrieve

import (
	"cmp"
	"context"
	"strings"

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
			return readAs(ctx, next, call, own+"/"+file)
		}
	}
}

// readAs reads a file by another URI than the call's; the answer has the call's.
func readAs(ctx context.Context, read tool.Handler, call *tool.Call, uri string) (tool.Result, error) {
	inner := *call
	inner.Name = uri
	result, err := read(ctx, &inner)
	if err != nil {
		return result, err
	}
	return withURIs(result, func(string) string { return call.Name }), nil
}

// asResource returns a resource that is read as the file of a skill that it also is.
func asResource(t, file *tool.Tool) *tool.Tool {
	t = renamed(t, t.Name)
	t.Handler = func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		return readAs(ctx, file.Handler, call, file.Name)
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

// directories are the skills of a server by each spelling of their directory, in lower case.
type directories map[string][]tool.ID

// maxAlike bounds the skills whose directories have one spelling: resources of further skills are not found.
const maxAlike = 16

func directoriesOf(skills []tool.ID) directories {
	d := make(directories, len(skills))
	for _, id := range skills {
		for _, spelling := range tool.Spellings(skillRoot(id.Name)) {
			if spelling = strings.ToLower(spelling); len(d[spelling]) < maxAlike {
				d[spelling] = append(d[spelling], id)
			}
		}
	}
	return d
}

// around returns the skills in whose directories a resource lies, however its URI is spelt.
func (d directories) around(resource string) (skills []tool.ID) {
	if len(d) == 0 {
		return nil
	}
	for _, spelling := range tool.Spellings(resource) {
		spelling = strings.ToLower(spelling)
		for i := range len(spelling) {
			if spelling[i] == '/' {
				skills = append(skills, d[spelling[:i]]...)
			}
		}
	}
	return skills
}

// SkillsOf returns the IDs of the skills among definitions.
func SkillsOf(tools []*tool.Tool) (skills []tool.ID) {
	for _, t := range tools {
		if t.Def.ID.Kind == tool.KindSkill {
			skills = append(skills, t.Def.ID)
		}
	}
	return skills
}
