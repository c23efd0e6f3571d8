package tool

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"toolfinch/internal/rawjson"
)

// Def is the definition of a tool, prompt, resource, resource template or skill. Raw is the truth; the other fields are
// decoded from it for searching, validating and printing. A Def is immutable.
type Def struct {
	ID           ID
	Raw          json.RawMessage // the object from tools/list (prompts/list, ...), as sent or as TakeIn mended it
	Title        string          // title, else annotations.title; for a resource, else its name
	Description  string
	InputSchema  json.RawMessage // nil when absent
	OutputSchema json.RawMessage // nil when absent
	Annotations  Annotations
	App          App
	Hash         string // hex SHA-256 of Raw
	// Legacy is Raw without its output schema, if clients of revisions up to 2025-11-25 might refuse the schema;
	// else nil.
	Legacy json.RawMessage
	// Headings are those of a skill's SKILL.md, for searches; nil while nobody has read it.
	Headings []string
	// Whole is the Def with the full description, if Description is shortened for lists and answers; else nil.
	Whole *Def
	// Sent is the server's Raw, if a view has changed the definition; else nil.
	Sent json.RawMessage
	// Group has names and descriptions of the server's groups (ExtensionGroups) that have the definition, for searches;
	// "" for none.
	Group string
}

// Full returns the definition with its full description, for searches and for clients that ask for all of it.
func (d *Def) Full() *Def {
	if d.Whole != nil {
		return d.Whole
	}
	return d
}

// AlsoFor begins the last line of a description to which the owner has added words for searches, and ", " divides these.
const AlsoFor = "Also for: "

// AsSent returns the definition as its server sent it.
func (d *Def) AsSent() json.RawMessage {
	if d.Sent != nil {
		return d.Sent
	}
	return d.Raw
}

// App is the part of a definition for MCP Apps (extension io.modelcontextprotocol/ui, _meta.ui), which a client's
// host shows beside the conversation. The zero value is a tool for models and apps that no app shows.
type App struct {
	Shown    bool // ui.resourceUri: an app of the server shows its results
	NotModel bool // ui.visibility has no "model": not offered to models
	NotApp   bool // ui.visibility has no "app": apps may not call it
}

// Annotations are the hints of a definition. Missing hints have the defaults of the MCP specification (schema
// 2025-11-25, ToolAnnotations).
type Annotations struct {
	ReadOnly    bool // readOnlyHint, default false
	Destructive bool // destructiveHint, default true; meaningless when ReadOnly
	Idempotent  bool // idempotentHint, default false
	OpenWorld   bool // openWorldHint, default true

	// SaysDestructive is true if the definition itself sets destructiveHint to true.
	SaysDestructive bool
}

// Repeatable reports whether, by its annotations, calling the tool twice has no more effect than calling it once.
func (a Annotations) Repeatable() bool { return a.ReadOnly || a.Idempotent }

// ErrBadDef is wrapped by every error of ParseDef.
var ErrBadDef = errors.New("not a definition")

// ParseDef decodes one object of a tools/list answer, ParseKind an object of any list. They require only an object
// with a name (URI, URI template): other oddities, like a malformed schema or an unknown key, stay in Raw. Lists of
// strangers go through TakeIn instead. The fields of the Def share the memory of Raw, a copy of raw.
func ParseDef(server string, raw json.RawMessage) (*Def, error) {
	return ParseKind(KindTool, server, raw)
}

// ParseKind is ParseDef for any kind.
func ParseKind(kind Kind, server string, raw json.RawMessage) (*Def, error) {
	if !json.Valid(raw) || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, fmt.Errorf("%w: not a JSON object", ErrBadDef)
	}
	sum := sha256.Sum256(raw)
	return parsed(kind, server, bytes.Clone(raw), hex.EncodeToString(sum[:]))
}

// ParseStored is ParseKind for the stored Raw and Hash of a Def: a matching hash shows that raw was checked before.
// The Def keeps raw. If raw does not match, the error wraps ErrBadDef.
func ParseStored(kind Kind, server string, raw json.RawMessage, hash string) (*Def, error) {
	var stored [sha256.Size]byte
	if n, err := hex.Decode(stored[:], []byte(hash)[:min(len(hash), 2*len(stored))]); err != nil || n != len(stored) || len(hash) != 2*n || stored != sha256.Sum256(raw) {
		return nil, fmt.Errorf("%w: it is not what was stored", ErrBadDef)
	}
	return parsed(kind, server, raw, hash)
}

// parsed decodes a valid JSON object, which the Def keeps.
func parsed(kind Kind, server string, raw json.RawMessage, hash string) (*Def, error) {
	def := &Def{
		ID:          ID{Server: server, Kind: kind},
		Raw:         raw,
		Annotations: Annotations{Destructive: true, OpenWorld: true},
		Hash:        hash,
	}
	var hintTitle, name string
	for key, value := range rawjson.Members(def.Raw) {
		if key == kind.Key() {
			def.ID.Name = rawjson.Text(value)
			continue
		}
		switch key {
		case "name":
			name = rawjson.Text(value) // a resource's name is for people
		case "title":
			def.Title = rawjson.Text(value)
		case "description":
			def.Description = rawjson.Text(value)
		case "inputSchema":
			def.InputSchema = present(value)
		case "outputSchema":
			def.OutputSchema = present(value)
		case "annotations":
			hintTitle = def.Annotations.read(value)
		case "_meta":
			def.App.read(value)
		case "frontmatter":
			if kind == KindSkill {
				name, def.Description = rawjson.Text(rawjson.Member(value, "name")), rawjson.Text(rawjson.Member(value, "description"))
			}
		}
	}
	if def.ID.Name == "" {
		return nil, fmt.Errorf("%w: no %s", ErrBadDef, kind.Key())
	}
	if def.Title == "" {
		def.Title = cmp.Or(hintTitle, name)
	}
	if def.OutputSchema != nil && !legacyOutput(def.OutputSchema) {
		def.Legacy = rawjson.Without(def.Raw, "outputSchema")
	}
	return def, nil
}

// read reads the hints of an annotations object and returns its title.
func (a *Annotations) read(raw json.RawMessage) (title string) {
	for key, value := range rawjson.Members(raw) {
		switch key {
		case "title":
			title = rawjson.Text(value)
		case "readOnlyHint":
			flag(value, &a.ReadOnly)
		case "destructiveHint":
			flag(value, &a.Destructive)
			flag(value, &a.SaysDestructive)
		case "idempotentHint":
			flag(value, &a.Idempotent)
		case "openWorldHint":
			flag(value, &a.OpenWorld)
		}
	}
	return title
}

// read reads the MCP Apps members of a _meta object. Older servers send "ui/resourceUri" instead of the ui object.
func (a *App) read(meta json.RawMessage) {
	ui := rawjson.Member(meta, "ui")
	a.Shown = rawjson.Member(ui, "resourceUri") != nil || rawjson.Member(meta, "ui/resourceUri") != nil
	visibility := rawjson.Member(ui, "visibility")
	if len(visibility) == 0 || visibility[0] != '[' {
		return
	}
	a.NotModel, a.NotApp = true, true
	for who := range rawjson.Elements(visibility) {
		switch rawjson.Text(who) {
		case "model":
			a.NotModel = false
		case "app":
			a.NotApp = false
		}
	}
}

func flag(raw json.RawMessage, to *bool) {
	switch string(raw) {
	case "true":
		*to = true
	case "false":
		*to = false
	}
}

func present(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
