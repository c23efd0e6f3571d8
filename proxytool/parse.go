package proxytool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolfinch/nearest"
	"toolfinch/rawjson"
)

// Bounds of an operation.
const (
	MaxOperations = 50       // of a batch
	MaxLimit      = 1000     // of a page of a list
	PageBytes     = 32 << 10 // of the definitions in a page of a list without a limit
)

// Action is what an operation does.
type Action string

// The actions. ActionBatch is beyond the draft.
const (
	ActionList  Action = "list"
	ActionInfo  Action = "info"
	ActionCall  Action = "call"
	ActionBatch Action = "batch"
)

// Type is what an operation is about.
type Type string

// The types. A resource may be a resource template too.
const (
	TypeTool     Type = "tool"
	TypeResource Type = "resource"
	TypePrompt   Type = "prompt"
)

var (
	actions    = []string{string(ActionList), string(ActionInfo), string(ActionCall), string(ActionBatch)}
	types      = []string{string(TypeTool), string(TypeResource), string(TypePrompt)}
	parameters = []string{"action", "type", "path", "args", "filter", "limit", "offset", "cursor", "operations"}
	filters    = []string{"prefix", "server", "tags", "query"}
)

// Operation is one use of the proxy tool: its arguments. Check says whether it
// is a valid one.
type Operation struct {
	Action Action
	Type   Type            // "" for a batch
	Path   string          // name of a tool or prompt, URI of a resource; for info and call
	Args   json.RawMessage // object; for call; nil (or null) for none

	Filter *Filter // for list; nil for all
	Limit  *int    // for list: at most so many, 1 to MaxLimit; nil for PageBytes of them
	Offset *int    // for list: so many are left out at the start
	Cursor string  // for list: goes on after an earlier page; not beside Offset

	Operations []Operation // for batch: 1 to MaxOperations others

	invalid error // it could not be read
}

// Filter selects from a list. What is empty selects nothing out.
type Filter struct {
	Prefix string   `json:"prefix,omitempty"` // of the path
	Server string   `json:"server,omitempty"` // who has it
	Tags   []string `json:"tags,omitempty"`   // all of them
	Query  string   `json:"query,omitempty"`  // in words
}

// ArgumentError says that the arguments of the proxy tool are not valid.
type ArgumentError struct {
	Parameter string // "" when it is not about one
	Problem   string // a sentence for whoever sent them
}

// Error returns the sentence.
func (e *ArgumentError) Error() string { return e.Problem }

func refuse(parameter, format string, values ...any) error {
	return &ArgumentError{Parameter: parameter, Problem: fmt.Sprintf(format, values...)}
}

// Parse reads the arguments of the proxy tool and checks them; its errors are
// *ArgumentError. An operation of a batch that is wrong does not make the batch
// wrong: running it is its error.
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
			return refuse("operations", "operations[%d]: %s", i, err)
		}
	}
	return nil
}

// read takes the parameters and looks at their JSON types. What is wrong with
// them check tells.
func read(arguments json.RawMessage) Operation {
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	if !isObject(arguments) {
		return Operation{invalid: refuse("", "the arguments must be a JSON object")}
	}
	var op Operation
	for name, value := range rawjson.Members(arguments) {
		if err := op.set(name, value); err != nil && op.invalid == nil {
			op.invalid = err
		}
	}
	return op
}

func (o *Operation) set(name string, value json.RawMessage) error {
	if !slices.Contains(parameters, name) {
		return unknown("parameter", name, parameters)
	}
	if string(value) == "null" {
		return nil
	}
	var err error
	switch name {
	case "action":
		err = text(name, value, (*string)(&o.Action))
	case "type":
		err = text(name, value, (*string)(&o.Type))
	case "path":
		err = text(name, value, &o.Path)
	case "cursor":
		err = text(name, value, &o.Cursor)
	case "limit":
		o.Limit, err = whole(name, value)
	case "offset":
		o.Offset, err = whole(name, value)
	case "args":
		o.Args, err = objectOf(name, value)
	case "filter":
		o.Filter, err = readFilter(value)
	case "operations":
		o.Operations, err = readOperations(value)
	}
	return err
}

func readFilter(value json.RawMessage) (*Filter, error) {
	if !isObject(value) {
		return nil, refuse("filter", "filter must be an object of %s", list(filters, "and"))
	}
	var f Filter
	for name, value := range rawjson.Members(value) {
		if !slices.Contains(filters, name) {
			return nil, unknown("parameter of filter", name, filters)
		}
		if string(value) == "null" {
			continue
		}
		var err error
		switch name {
		case "prefix":
			err = text("filter.prefix", value, &f.Prefix)
		case "server":
			err = text("filter.server", value, &f.Server)
		case "query":
			err = text("filter.query", value, &f.Query)
			f.Query = strings.TrimSpace(f.Query)
		case "tags":
			f.Tags, err = tags(value)
		}
		if err != nil {
			return nil, err
		}
	}
	return &f, nil
}

// tags reads an array of strings, or one string, without what is empty.
func tags(value json.RawMessage) ([]string, error) {
	if value[0] == '"' {
		value = array([]json.RawMessage{value})
	}
	var all []*string
	if json.Unmarshal(value, &all) != nil || slices.Contains(all, nil) {
		return nil, refuse("filter", "filter.tags must be an array of strings")
	}
	var out []string
	for _, tag := range all {
		if text := strings.TrimSpace(*tag); text != "" {
			out = append(out, text)
		}
	}
	return out, nil
}

func readOperations(value json.RawMessage) ([]Operation, error) {
	if len(value) == 0 || value[0] != '[' {
		return nil, refuse("operations", "operations must be an array")
	}
	ops := []Operation{}
	for element := range rawjson.Elements(value) {
		if len(ops) > MaxOperations { // too many, whatever the rest is
			break
		}
		op := read(element)
		if !isObject(element) {
			op.invalid = refuse("operations", "operations[%d] must be a JSON object", len(ops))
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
		return refuse("operations", "operations are only for action batch")
	}
	if o.Action == ActionList {
		return o.checkList()
	}
	if o.Path == "" {
		return refuse("path", "path is required for action %s: the name of a tool or prompt, the URI of a resource", o.Action)
	}
	if name := o.listing(); name != "" {
		return refuse(name, "%s is only for action list", name)
	}
	return o.checkArgs()
}

func (o Operation) checkList() error {
	switch {
	case o.Path != "":
		return refuse("path", "path is not allowed for action list; use info to look at one, or filter.prefix to list some")
	case o.Limit != nil && (*o.Limit < 1 || *o.Limit > MaxLimit):
		return refuse("limit", "limit must be 1 to %d; without one a page has about %d kB", MaxLimit, PageBytes>>10)
	case o.Offset != nil && *o.Offset < 0:
		return refuse("offset", "offset must not be negative")
	case o.Offset != nil && o.Cursor != "":
		return refuse("offset", "offset and cursor exclude each other")
	}
	return o.checkArgs()
}

func (o Operation) checkArgs() error {
	switch {
	case !o.hasArgs():
		return nil
	case o.Action != ActionCall:
		return refuse("args", "args is only for action call")
	case !isObject(o.Args):
		return refuse("args", "args must be an object")
	case o.Type == TypeResource && !isEmpty(o.Args):
		return refuse("args", "a resource takes no args; everything is in its URI")
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
		return refuse(name, "%s is not allowed beside action batch; it belongs into each of the operations", name)
	}
	switch n := len(o.Operations); {
	case n < 1:
		return refuse("operations", "operations is required for action batch: an array of 1 to %d operations", MaxOperations)
	case n > MaxOperations:
		return refuse("operations", "operations has more than %d: make several batches of them", MaxOperations)
	}
	return nil
}

// checkInBatch is check for an operation of a batch.
func (o Operation) checkInBatch() error {
	if o.invalid == nil && o.Action == ActionBatch {
		return refuse("action", "a batch cannot be an operation of a batch")
	}
	return o.check()
}

func (o Operation) hasArgs() bool {
	args := bytes.TrimSpace(o.Args)
	return len(args) > 0 && string(args) != "null"
}

// listing names a parameter that only lists take and o has, "" for none.
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

// Arguments returns the arguments that Parse reads o from. Check o before: what
// is not valid may not come back.
func (o Operation) Arguments() json.RawMessage {
	var out fields
	out.text("action", string(o.Action))
	if o.Type != "" {
		out.text("type", string(o.Type))
	}
	if o.Path != "" {
		out.text("path", o.Path)
	}
	if o.hasArgs() {
		out.raw("args", o.Args)
	}
	if o.Filter != nil {
		out.raw("filter", encode(o.Filter))
	}
	if o.Limit != nil {
		out.number("limit", *o.Limit)
	}
	if o.Offset != nil {
		out.number("offset", *o.Offset)
	}
	if o.Cursor != "" {
		out.text("cursor", o.Cursor)
	}
	if o.Operations != nil {
		ops := make([]json.RawMessage, len(o.Operations))
		for i, op := range o.Operations {
			ops[i] = op.Arguments()
		}
		out.raw("operations", array(ops))
	}
	return out.object()
}

func text(name string, value json.RawMessage, to *string) error {
	if json.Unmarshal(value, to) != nil {
		return refuse(name, "%s must be a string", name)
	}
	return nil
}

// whole reads a whole number.
func whole(name string, value json.RawMessage) (*int, error) {
	n, ok := rawjson.Int(value)
	if !ok {
		return nil, refuse(name, "%s must be a whole number", name)
	}
	return &n, nil
}

// objectOf reads an object, or a string that holds the JSON of one: some models
// write it so.
func objectOf(name string, value json.RawMessage) (json.RawMessage, error) {
	if value[0] == '"' {
		value = bytes.TrimSpace([]byte(rawjson.Text(value)))
	}
	if !isObject(value) {
		return nil, refuse(name, "%s must be an object", name)
	}
	return value, nil
}

func isObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) && json.Valid(raw)
}

func isEmpty(object json.RawMessage) bool {
	for range rawjson.Members(object) {
		return false
	}
	return true
}

func oneOf(parameter, value string, known []string) error {
	switch {
	case value == "":
		return refuse(parameter, "%s is required: %s", parameter, list(known, "or"))
	case !slices.Contains(known, value):
		return unknown(parameter, value, known)
	}
	return nil
}

// unknown refuses a word that is none of known.
func unknown(what, word string, known []string) error {
	meant := ""
	if names := nearest.Names(word, known, 1, nearest.Loose); len(names) > 0 {
		meant = fmt.Sprintf(" (did you mean %s?)", names[0])
	}
	return refuse(what, "unknown %s %q%s: there are %s", what, clip(word), meant, list(known, "and"))
}

func list(words []string, last string) string {
	n := len(words) - 1
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}
