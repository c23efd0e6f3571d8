package document

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"toolfinch/internal/rawjson"
)

// Edit is a document while it is changed.
type Edit struct {
	Data   []byte
	IsJSON bool
	name   string
	tree   json.RawMessage // Data as plain JSON
}

// NewEdit begins an edit of data; name tells JSON from YAML where data does not. The
// error is ErrByHand for a document that is no mapping.
func NewEdit(name string, data []byte) (*Edit, error) {
	e := &Edit{Data: data, name: name}
	ext := strings.ToLower(filepath.Ext(name))
	if e.IsJSON = ext == ".json" || ext == ".jsonc"; !e.IsJSON && !IsBlank(data) {
		_, e.IsJSON, _ = Parse(name, data)
	}
	var err error
	if e.tree, err = e.treeOf(data); err != nil || !rawjson.IsObject(e.tree) {
		return nil, ErrByHand
	}
	return e, nil
}

// maxEdited bounds the values of a document that is edited: aliases of aliases grow without end.
const maxEdited = 1_000_000

// treeOf returns a content of the document as plain JSON.
func (e *Edit) treeOf(data []byte) (json.RawMessage, error) {
	if IsBlank(data) {
		return json.RawMessage("{}"), nil
	}
	root, _, problems := Parse(e.name, data)
	if len(problems) > 0 {
		return nil, ErrByHand
	}
	if left := maxEdited; !root.Fits(&left) {
		return nil, ErrByHand
	}
	return root.JSON(), nil
}

// At returns the value at path, nil for none.
func (e *Edit) At(path ...string) json.RawMessage { return valueAt(e.tree, path) }

func valueAt(value json.RawMessage, path []string) json.RawMessage {
	for _, key := range path {
		value = rawjson.Member(value, key)
	}
	return value
}

// Set changes the value at path, or removes it if value is nil. Comments, order and
// every other value stay, or the document stays as it was.
func (e *Edit) Set(value json.RawMessage, path ...string) (err error) {
	var edited []byte
	switch {
	case !e.IsJSON:
		edited = setYAML(e.Data, path, value)
	case value == nil:
		edited, err = RemoveJSON(e.Data, path)
	default:
		edited, err = SetJSON(e.Data, path, value)
	}
	if err != nil {
		return err
	}
	tree, err := e.treeOf(edited)
	got := valueAt(tree, path)
	if err != nil || edited == nil || (got == nil) != (value == nil) || !Same(got, value) || !Same(e.tree, tree, path...) {
		return ErrByHand
	}
	e.Data, e.tree = edited, tree
	return nil
}
