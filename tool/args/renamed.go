package args

import (
	"encoding/json"
	"slices"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
)

// Renamed returns an object whose members have their own names in place of other names, which synonyms has folded. A
// member stays as it is beside one with its own name.
func Renamed(object json.RawMessage, synonyms map[string][]string, own ...string) json.RawMessage {
	out := rawjson.NewObject(len(object))
	for key, value := range rawjson.Members(object) {
		folded := nearest.Fold(key)
		i := slices.IndexFunc(own, func(name string) bool { return slices.Contains(synonyms[name], folded) })
		if i >= 0 && rawjson.Member(object, own[i]) == nil {
			key = own[i]
		}
		out.Add(key, value)
	}
	return out.JSON()
}
