package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Def is what a tool says of itself. Raw is the truth; the other fields are
// decoded from it for those who search, validate or print. A Def is never
// changed after it was made.
type Def struct {
	ID           ID
	Raw          json.RawMessage // the object from tools/list, as it was sent
	Title        string          // title, else annotations.title
	Description  string
	InputSchema  json.RawMessage // nil when absent
	OutputSchema json.RawMessage // nil when absent
	Annotations  Annotations
	Hash         string // hex SHA-256 of Raw
}

// Annotations are the hints of a definition, with the defaults of the MCP
// specification (schema 2025-11-25, ToolAnnotations) filled in.
type Annotations struct {
	ReadOnly    bool // readOnlyHint, default false
	Destructive bool // destructiveHint, default true; meaningless when ReadOnly
	Idempotent  bool // idempotentHint, default false
	OpenWorld   bool // openWorldHint, default true
}

// Repeatable reports whether calling the tool twice does no more than calling
// it once, by its own word.
func (a Annotations) Repeatable() bool { return a.ReadOnly || a.Idempotent }

// ErrBadDef is wrapped by every error of ParseDef.
var ErrBadDef = errors.New("not a tool definition")

// ParseDef decodes one object of a tools/list answer. It asks only for an
// object with a name: whatever else is odd (a schema that is no schema, an
// unknown key, a hint of the wrong type) stays in Raw and harms nobody.
func ParseDef(server string, raw json.RawMessage) (*Def, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadDef, err)
	}
	name := text(fields["name"])
	if name == "" {
		return nil, fmt.Errorf("%w: no name", ErrBadDef)
	}
	def := &Def{
		ID:           ID{Server: server, Name: name},
		Raw:          bytes.Clone(raw),
		Title:        text(fields["title"]),
		Description:  text(fields["description"]),
		InputSchema:  present(fields["inputSchema"]),
		OutputSchema: present(fields["outputSchema"]),
		Annotations:  Annotations{Destructive: true, OpenWorld: true},
	}
	sum := sha256.Sum256(def.Raw)
	def.Hash = hex.EncodeToString(sum[:])

	var hints map[string]json.RawMessage
	if json.Unmarshal(fields["annotations"], &hints) == nil {
		flag(hints["readOnlyHint"], &def.Annotations.ReadOnly)
		flag(hints["destructiveHint"], &def.Annotations.Destructive)
		flag(hints["idempotentHint"], &def.Annotations.Idempotent)
		flag(hints["openWorldHint"], &def.Annotations.OpenWorld)
		if def.Title == "" {
			def.Title = text(hints["title"])
		}
	}
	return def, nil
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func flag(raw json.RawMessage, to *bool) {
	var b *bool
	if json.Unmarshal(raw, &b) == nil && b != nil {
		*to = *b
	}
}

func present(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil
	}
	return bytes.Clone(raw)
}
