package proxytool

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool/args"
)

// Bounds of an operation.
const (
	MaxOperations = 50       // of a batch
	MaxLimit      = 1000     // of a page of a list
	PageBytes     = 32 << 10 // of the definitions in a page of a list without a limit
)

// Action is what an operation does.
type Action string

// The actions. ActionBatch extends the draft.
const (
	ActionList  Action = "list"
	ActionInfo  Action = "info"
	ActionCall  Action = "call"
	ActionBatch Action = "batch"
)

// Type is the kind of item that an operation is for.
type Type string

// The types. TypeResource includes resource templates.
const (
	TypeTool     Type = "tool"
	TypeResource Type = "resource"
	TypePrompt   Type = "prompt"
)

var (
	actions = []string{string(ActionList), string(ActionInfo), string(ActionCall), string(ActionBatch)}
	types   = []string{string(TypeTool), string(TypeResource), string(TypePrompt)}
)

// Operation is one use of the proxy tool: its arguments. Check validates it.
type Operation struct {
	Action Action          `json:"action"`
	Type   Type            `json:"type,omitempty"` // "" for a batch
	Path   string          `json:"path,omitempty"` // name of a tool or prompt, URI of a resource; for info and call
	Args   json.RawMessage `json:"args,omitempty"` // object; for call; nil (or null) for none

	Filter *Filter `json:"filter,omitempty"` // for list; nil: all items
	Limit  *int    `json:"limit,omitempty"`  // for list: most items of a page, 1 to MaxLimit; nil: as many as fit into PageBytes
	Offset *int    `json:"offset,omitempty"` // for list: number of items to skip
	Cursor string  `json:"cursor,omitempty"` // for list: continues an earlier page; not beside Offset

	Operations []Operation `json:"operations,omitzero"` // for batch: 1 to MaxOperations, none a batch

	invalid error // the parse error
}

// Filter selects items of a list. An empty field selects all.
type Filter struct {
	Prefix string   `json:"prefix,omitempty"` // of the path
	Server string   `json:"server,omitempty"` // the server of the item
	Tags   []string `json:"tags,omitempty"`   // the item has all of them
	Query  string   `json:"query,omitempty"`  // in words
}

// Parse reads the arguments of the proxy tool and checks them; its errors are *args.Error. An invalid
// operation of a batch fails alone, when it runs.
func Parse(arguments json.RawMessage) (Operation, error) {
	op := read(arguments)
	if err := op.check(); err != nil {
		return Operation{}, err
	}
	return op, nil
}

// Check applies the rules of Parse to an operation made in Go, and to each
// operation of a batch.
func (o Operation) Check() error {
	if err := o.check(); err != nil {
		return err
	}
	for i, op := range o.Operations {
		if err := op.checkInBatch(); err != nil {
			return args.Refuse("operations[%d]: %s", i, err)
		}
	}
	return nil
}

// read reads the arguments; check reports their mistakes.
func read(arguments json.RawMessage) (op Operation) {
	var filter Filter
	var filtered bool
	if rawjson.IsObject(arguments) && json.Valid(arguments) {
		arguments = args.Renamed(arguments, synonyms, "path", "args", "operations")
	}
	op.invalid = args.Read("this tool", arguments,
		args.Text("action", &op.Action),
		args.Text("type", &op.Type),
		args.Text("path", &op.Path),
		args.Object("args", &op.Args),
		args.Members("filter", &filtered,
			args.Text("prefix", &filter.Prefix),
			args.Text("server", &filter.Server),
			args.Texts("tags", &filter.Tags),
			args.Text("query", &filter.Query)),
		args.IntPointer("limit", &op.Limit, 1, MaxLimit),
		args.IntPointer("offset", &op.Offset, 0, args.NoBound),
		args.Text("cursor", &op.Cursor),
		args.Func("operations", func(value json.RawMessage) (err error) {
			op.Operations, err = readOperations(value)
			return err
		}))
	if filtered {
		filter.Query = strings.TrimSpace(filter.Query)
		filter.Tags = args.Trimmed(filter.Tags)
		op.Filter = &filter
	}
	return op
}

// synonyms are names, folded, that models give the arguments.
var synonyms = map[string][]string{
	"path":       {"name", "tool", "toolname", "uri"},
	"args":       {"arguments", "params", "parameters", "input"},
	"operations": {"calls", "batch"},
}

func readOperations(value json.RawMessage) ([]Operation, error) {
	if value[0] != '[' {
		return nil, args.Refuse("operations must be an array of objects")
	}
	ops := []Operation{}
	for element := range rawjson.Elements(value) {
		if len(ops) > MaxOperations { // too many, however valid the rest is
			break
		}
		op := read(element)
		if !rawjson.IsObject(element) {
			op.invalid = args.Refuse("operations[%d] must be a JSON object", len(ops))
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// check applies the rules, but not to the operations of a batch.
func (o Operation) check() error {
	if o.invalid != nil {
		return o.invalid
	}
	if err := oneOf("action", string(o.Action), actions); err != nil {
		return err
	}
	if o.Action == ActionBatch {
		return o.checkBatch()
	}
	if err := oneOf("type", string(o.Type), types); err != nil {
		return err
	}
	if o.Operations != nil {
		return args.Refuse("operations are only for action batch")
	}
	if o.Action == ActionList {
		return o.checkList()
	}
	if o.Path == "" {
		return args.Refuse("path is required for action %s: the name of a tool or prompt, the URI of a resource", o.Action)
	}
	if name := o.listing(); name != "" {
		return args.Refuse("%s is only for action list", name)
	}
	return o.checkArgs()
}

func (o Operation) checkList() error {
	switch {
	case o.Path != "":
		return args.Refuse("path is not allowed for action list; use info to look at one, or filter.prefix to list some")
	case o.Limit != nil && (*o.Limit < 1 || *o.Limit > MaxLimit):
		return args.Refuse("limit must be 1 to %d; without one a page has about %d kB", MaxLimit, PageBytes>>10)
	case o.Offset != nil && *o.Offset < 0:
		return args.Refuse("offset must not be negative")
	case o.Offset != nil && o.Cursor != "":
		return args.Refuse("offset and cursor exclude each other")
	}
	return o.checkArgs()
}

func (o Operation) checkArgs() error {
	switch {
	case !o.hasArgs():
		return nil
	case o.Action != ActionCall:
		return args.Refuse("args is only for action call")
	case !isObject(o.Args):
		return args.Refuse("args must be an object")
	case o.Type == TypeResource && !rawjson.IsEmpty(o.Args):
		return args.Refuse("a resource takes no args; everything is in its URI")
	}
	return nil
}

func (o Operation) checkBatch() error {
	name := o.listing()
	switch {
	case o.Type != "":
		name = "type"
	case o.Path != "":
		name = "path"
	case o.hasArgs():
		name = "args"
	}
	if name != "" {
		return args.Refuse("%s is not allowed beside action batch; it belongs into each of the operations", name)
	}
	switch n := len(o.Operations); {
	case n < 1:
		return args.Refuse("operations is required for action batch: an array of 1 to %d operations", MaxOperations)
	case n > MaxOperations:
		return args.Refuse("operations has more than %d: make several batches of them", MaxOperations)
	}
	return nil
}

// checkInBatch is check for an operation of a batch.
func (o Operation) checkInBatch() error {
	if o.invalid == nil && o.Action == ActionBatch {
		return args.Refuse("a batch cannot be an operation of a batch")
	}
	return o.check()
}

func (o Operation) hasArgs() bool {
	args := bytes.TrimSpace(o.Args)
	return len(args) > 0 && string(args) != "null"
}

// listing names a parameter of o that only lists take, "" for none.
func (o Operation) listing() string {
	switch {
	case o.Filter != nil:
		return "filter"
	case o.Limit != nil:
		return "limit"
	case o.Offset != nil:
		return "offset"
	case o.Cursor != "":
		return "cursor"
	}
	return ""
}

// Arguments returns arguments from which Parse reads o, nil if Args is not JSON. Check o first: an
// invalid o may change.
func (o Operation) Arguments() json.RawMessage {
	if !o.hasArgs() {
		o.Args = nil
	}
	out, _ := rawjson.Encode(o)
	return out
}

// isObject reports whether bytes are the JSON of an object.
func isObject(raw json.RawMessage) bool { return rawjson.IsObject(raw) && json.Valid(raw) }

func oneOf(argument, value string, known []string) error {
	switch {
	case value == "":
		return args.Refuse("%s is required: %s", argument, args.Or(known))
	case !slices.Contains(known, value):
		return args.Unknown(argument, value, known)
	}
	return nil
}
