package upstream

import (
	"encoding/json"
	"slices"

	"toolfinch/internal/rawjson"
)

// only returns an object with the named members of a JSON object.
func only(object []byte, names ...string) json.RawMessage {
	return pick(object, func(key string) bool { return slices.Contains(names, key) })
}

// without returns a JSON object less the named members.
func without(object []byte, names ...string) json.RawMessage {
	return pick(object, func(key string) bool { return !slices.Contains(names, key) })
}

func pick(object []byte, wanted func(key string) bool) json.RawMessage {
	out := rawjson.NewObject(len(object))
	for key, value := range rawjson.Members(object) {
		if wanted(key) {
			out.Add(key, value)
		}
	}
	return out.JSON()
}
