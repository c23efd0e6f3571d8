package upstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// ErrSkillChanged is the error of a skill whose content is not what its entry says. The server is listed again.
var ErrSkillChanged = errors.New("the skill is not what its server listed; the server is listed again")

// readSkill reads a file of a skill, whose URI at the server is call.Name, and checks it against the skill's entry
// (SEP-2640, "Integrity and Verification").
func readSkill(ctx context.Context, def *tool.Def, call *tool.Call, read func(context.Context, *tool.Def, *tool.Call) (tool.Result, error)) (tool.Result, error) {
	skill := tool.SkillOf(def)
	file, ok := skill.File(call.Name)
	if !ok {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: fmt.Sprintf("the skill %.100q has no file %.100q", skill.URI, call.Name)}
	}
	result, err := read(ctx, &tool.Def{ID: tool.ID{Server: def.ID.Server, Name: file.URI, Kind: tool.KindResource}}, call)
	if err != nil || !result.Complete() {
		return result, err
	}
	content, err := contentOf(result, file.URI)
	if err == nil {
		err = file.Verify(content)
	}
	if err == nil && file.URI == skill.URI {
		err = sameFrontmatter(content, rawjson.Member(def.Raw, "frontmatter"))
	}
	if err != nil {
		return nil, &Error{Server: def.ID.Server, Op: "read " + file.URI, Err: fmt.Errorf("%w: %w", ErrSkillChanged, err)}
	}
	return result, nil
}

// contentOf returns the bytes of the only file in a result of resources/read.
func contentOf(result tool.Result, uri string) (content []byte, err error) {
	n := 0
	for item := range rawjson.Elements(rawjson.Member(json.RawMessage(result), "contents")) {
		n++
		if own := rawjson.Text(rawjson.Member(item, "uri")); own != uri {
			return nil, fmt.Errorf("the server answered with %.100q", own)
		}
		if blob := rawjson.Member(item, "blob"); blob != nil {
			if content, err = base64.StdEncoding.DecodeString(rawjson.Text(blob)); err != nil {
				return nil, err
			}
			continue
		}
		content = []byte(rawjson.Text(rawjson.Member(item, "text")))
	}
	if n != 1 {
		return nil, fmt.Errorf("the server answered with %d files", n)
	}
	return content, nil
}

// sameFrontmatter compares the frontmatter of a SKILL.md with the entry's, which was searched and approved.
func sameFrontmatter(markdown []byte, entry json.RawMessage) error {
	own, err := document.Frontmatter(markdown)
	if err != nil {
		return err
	}
	var values [2]any
	for i, raw := range []json.RawMessage{own, entry} {
		if err := json.Unmarshal(raw, &values[i]); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(values[0], values[1]) {
		return errors.New("its frontmatter is not its entry's")
	}
	return nil
}
