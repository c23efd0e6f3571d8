package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"toolfinch/tool"
)

// maxPages bounds tools/list of a server that never stops.
const maxPages = 1000

// list asks for all tools. Definitions that are none, and second ones of a
// name, are rejected; the others are kept.
func (c *conn) list(ctx context.Context) (defs []*tool.Def, rejected []error, err error) {
	if c.capabilities.Tools == nil {
		return nil, nil, nil
	}
	seen := map[string]bool{}
	cursors := map[string]bool{}
	cursor := ""
	for range maxPages {
		params := json.RawMessage(`{}`)
		if cursor != "" {
			raw, err := json.Marshal(map[string]string{"cursor": cursor})
			if err != nil {
				return nil, nil, err
			}
			params = raw
		}
		if params, err = c.withMeta(params, "", ""); err != nil {
			return nil, nil, err
		}
		raw, err := c.request(ctx, "tools/list", params, c.header("tools/list", params, nil))
		if err != nil {
			return nil, nil, err
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, nil, fmt.Errorf("the list of tools is none: %w", err)
		}
		for i, item := range page.Tools {
			def, err := tool.ParseDef(c.settings.Name, item)
			switch {
			case err != nil:
				rejected = append(rejected, fmt.Errorf("tool %d: %w", len(seen)+i+1, err))
			case seen[def.ID.Name]:
				rejected = append(rejected, fmt.Errorf("tool %q is listed twice", def.ID.Name))
			default:
				seen[def.ID.Name] = true
				defs = append(defs, def)
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			return defs, rejected, nil
		}
		if cursors[cursor] {
			return nil, nil, errors.New("the list of tools repeats itself")
		}
		cursors[cursor] = true
	}
	return nil, nil, fmt.Errorf("the list of tools has more than %d pages", maxPages)
}
