package configs

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"toolfinch/internal/rawjson"
)

// schema is a JSON Schema of draft 7, the one that editors know best.
type schema map[string]any

// Schema returns the JSON Schema of a configuration file, for completion and
// checks in editors. What a file with servers of another client may have beside
// them is not checked. A valid file may still not load: a schema knows no files,
// no variables, and no names of servers.
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
	properties["disabled"] = anyOf(schema{"description": "of other clients"}, serverEnabled{}.schema(), null)
	for name, row := range rows {
		switch like, _ := properties[row.like].(schema); {
		case like != nil:
			properties[name] = anyOf(schema{"description": "of other clients"}, like, null)
		case row.take == nil:
			properties[name] = schema{"description": strings.TrimSuffix("not used; "+row.hint, "; ")}
		case properties[name] == nil:
			properties[name] = schema{"description": "of other clients"}
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

var (
	null        = schema{"type": "null"}
	anyText     = schema{"type": "string"}
	anyWord     = schema{"type": []string{"string", "number", "boolean"}}
	oneVariable = ref("variable") // text that is one variable
)

func ref(name string) schema { return schema{"$ref": "#/definitions/" + name} }

// anyOf joins alternatives. Those that have alternatives themselves are taken apart.
func anyOf(alternatives ...schema) schema {
	var list []schema
	for _, s := range alternatives {
		if inner, ok := s["anyOf"].([]schema); ok && len(s) == 1 {
			list = append(list, inner...)
		} else {
			list = append(list, s)
		}
	}
	return schema{"anyOf": list}
}

var markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// schema describes a mapping with fixed keys.
func (all keys) schema() schema {
	properties := schema{}
	for _, k := range all {
		value := k.value.schema()
		if !k.null { // nothing is the default
			value = anyOf(value, null)
		}
		value["description"] = markdownLink.ReplaceAllString(k.doc, "$1")
		if usual := k.value.usual(); usual != nil && k.without == "" {
			value["default"] = json.RawMessage(usual.JSON())
		}
		properties[k.name] = value
	}
	return schema{"type": "object", "properties": properties, "additionalProperties": false}
}

func (k list[V]) schema() schema { return schema{"type": "array", "items": k.item.schema()} }
func (k named[V]) schema() schema {
	return schema{"type": "object", "additionalProperties": k.item.schema()}
}
func (k onOff[T]) schema() schema { return anyOf(boolean{}.schema(), k.section.schema()) }

func (k str) schema() schema {
	if k.word {
		return anyWord
	}
	return anyText
}

func (k number[N]) schema() schema {
	return anyOf(schema{"type": "integer", "minimum": k.low, "maximum": k.high}, oneVariable)
}

func (boolean) schema() schema { return anyOf(schema{"type": "boolean"}, oneVariable) }

func (k duration) schema() schema {
	low, high, _ := k.bounds()
	seconds := schema{"type": "number", "minimum": low.Seconds(), "maximum": high.Seconds()}
	return anyOf(seconds, schema{"type": "string", "pattern": `^\+?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+$`}, containsVariable)
}

var containsVariable = schema{"type": "string", "pattern": `\$\{`}

func (size) schema() schema {
	return anyOf(schema{"type": "number", "minimum": 1, "maximum": maxResult}, schema{"type": "string", "pattern": sizeForm.String()}, containsVariable)
}

// schema lists the words for completion, and accepts them in any case.
func (k choice[T]) schema() schema {
	var pattern strings.Builder
	for i, name := range k.names() {
		if i > 0 {
			pattern.WriteByte('|')
		}
		for _, r := range name {
			if upper, lower := unicode.ToUpper(r), unicode.ToLower(r); upper != lower {
				fmt.Fprintf(&pattern, "[%c%c]", upper, lower)
			} else {
				pattern.WriteString(regexp.QuoteMeta(string(r)))
			}
		}
	}
	return anyOf(schema{"enum": k.words}, schema{"type": "string", "pattern": "^(" + pattern.String() + ")$"}, containsVariable)
}

func (secret) schema() schema   { return anyText }
func (onError) schema() schema  { return onErrors.schema() }
func (logLevel) schema() schema { return logLevels.schema() }
func (words) schema() schema    { return schema{"type": "object", "additionalProperties": anyWord} }
func (inherited) schema() schema {
	return anyOf(inheritWords.schema(), schema{"type": "array", "items": anyText})
}
func (serverEnabled) schema() schema   { return boolean{}.schema() }
func (override) schema() schema        { return anyOf(overrideKeys.schema(), null) }
func (bound) schema() schema           { return schema{} }
func (outputCacheKind) schema() schema { return ref("output_cache") }
func (gatingOnOff) schema() schema     { return ref("gating") }
func (proxyName) schema() schema       { return anyText }
func (pattern) schema() schema         { return anyText }
func (hooks) schema() schema           { return hooksKeys.schema() }
func (pythonKind) schema() schema      { return anyOf(anyText, pythonKeys.schema()) }
func (hook) schema() schema            { return anyOf(anyText, hookKeys.schema()) }
func (function[T]) schema() schema     { return anyText }
func (custom) schema() schema          { return anyOf(anyText, customKeys.schema()) }
func (arguments) schema() schema       { return schema{"type": "object"} }
func (step) schema() schema            { return stepKeys.schema() }
func (composite) schema() schema       { return compositeKeys.schema() }
func (input) schema() schema           { return anyOf(schemaTypes.schema(), schema{"type": "object"}, null) }

func (proxyTool) schema() schema {
	return anyOf(schema{"type": "boolean"}, anyText, proxyToolKeys.schema())
}

func (viewTools) schema() schema {
	return schema{"type": "object", "additionalProperties": anyOf(ref("tools"), null)}
}

func (views) schema() schema {
	return schema{"type": "object", "propertyNames": schema{"pattern": viewName.String()}, "additionalProperties": viewKeys.schema()}
}
