package configs

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
)

// Schema returns the JSON Schema of a configuration file, for editors. Other keys in a file
// of another client are not checked. Load may refuse a valid file, because a schema knows
// no files, variables or names of servers.
func Schema() json.RawMessage {
	servers := anyOf(schema{"type": "object", "additionalProperties": ref("server")}, schema{"type": "array", "items": ref("server")}, null)
	properties := top.schema()["properties"].(schema)
	maps.Copy(properties, schema{"$schema": schema{"type": "string"}, "inputs": schema{}})
	for _, block := range serverBlocks {
		properties[block] = servers
	}
	root := schema{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "Configuration of toolfinch",
		"type":        "object",
		"properties":  properties,
		"definitions": definitions(),
		"if":          anyOf(schema{"required": []string{"mcpServers"}}, schema{"required": []string{"servers"}}),
		"else":        schema{"propertyNames": anyOf(schema{"pattern": "^x-"}, schema{"enum": slices.Sorted(maps.Keys(properties))})},
	}
	return rawjson.Of(root)
}

func definitions() schema {
	server := serverKeys.schema()
	properties := server["properties"].(schema)
	properties["tools"] = anyOf(properties["tools"].(schema), schema{"type": "array"})
	pairs := schema{"type": "array", "items": schema{"type": []string{"string", "object"}}}
	for name, forms := range map[string][]schema{"args": {anyWord}, "env": {anyText, pairs}, "headers": {anyText, pairs}, "enabled": {schema{"enum": slices.Sorted(maps.Keys(truths))}, schema{"enum": []int{0, 1}}}} {
		properties[name] = anyOf(append(forms, properties[name].(schema))...)
	}
	for key, row := range rows {
		what := "of other clients"
		if row.take == nil {
			what = strings.TrimSuffix("not used; "+row.hint, "; ")
		}
		for _, name := range append(strings.Fields(row.also), key) {
			if properties[name] == nil {
				properties[name] = schema{"description": what}
			}
		}
	}
	server["anyOf"] = []schema{{"required": []string{"command"}}, {"required": []string{"url"}}, {"required": []string{"serverUrl"}}, {"required": []string{"httpUrl"}}}
	return schema{
		"server":       server,
		"tools":        overrides.schema(),
		"output_cache": outputCache.onOff.schema(),
		"gating":       gatingKind.onOff.schema(),
		"variable":     schema{"type": "string", "pattern": `^\$\{.*\}$`},
	}
}
