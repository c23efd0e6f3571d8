package configs

// schema is a JSON Schema of draft 7, which most editors support.
type schema map[string]any

var (
	null        = schema{"type": "null"}
	anyText     = schema{"type": "string"}
	anyWord     = schema{"type": []string{"string", "number", "boolean"}}
	oneVariable = ref("variable") // text that is one variable
)

var containsVariable = schema{"type": "string", "pattern": `\$\{`}

func ref(name string) schema { return schema{"$ref": "#/definitions/" + name} }

// anyOf joins alternatives, and flattens alternatives of alternatives.
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
