package clients

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"toolfinch/rawjson"
)

func (f File) isYAML() bool {
	ext := strings.ToLower(filepath.Ext(f.Path))
	return ext == ".yaml" || ext == ".yml"
}

// yamlServers are those of a mapping by name, as Goose has them, or of a list of servers
// with names, as Continue does.
func (f File) yamlServers(data []byte) ([]Server, error) {
	block, err := f.plain(data)
	if err != nil {
		return nil, err
	}
	for _, key := range f.block {
		block = rawjson.Member(block, key)
	}
	if len(block) > 0 && block[0] == '[' {
		var named rawjson.Object
		for item := range rawjson.Elements(block) {
			named.Add(rawjson.Text(rawjson.Member(item, "name")), json.RawMessage(item))
		}
		block = named.JSON()
	}
	return serversIn(block, f.block[len(f.block)-1])
}

// plain is the contents as JSON.
func (f File) plain(data []byte) (json.RawMessage, error) {
	switch {
	case !f.isYAML():
		d, err := parseJSON(data)
		if err != nil {
			return nil, err
		}
		return d.standard(), nil
	case f.yaml == nil:
		return nil, errors.New("YAML cannot be read here")
	}
	return f.yaml(data)
}
