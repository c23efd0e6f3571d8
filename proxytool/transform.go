package proxytool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// ErrNoAnswer is wrapped by the errors of transforms and Decode: the result is no proxy tool's answer
// to such an operation.
var ErrNoAnswer = errors.New("not such an answer of a proxy tool")

// ResourceAsToolContent makes an embedded resource of one element of the contents of resources/read.
// Text that is JSON becomes compact, and its mimeType "application/json"; contentType then has the old
// type, and the member "proxied" of the item's _meta is an object with the old mimeType, if any. Text
// that is not Unicode stays unchanged, like an element with a contentType.
func ResourceAsToolContent(content json.RawMessage, l Label) json.RawMessage {
	resource, proxied := objectify(content)
	return embed(resource, l.object(), proxied)
}

// PromptAsToolContent makes an embedded resource with a prompts/get result as JSON.
func PromptAsToolContent(result json.RawMessage, l Label) json.RawMessage {
	return embedJSON(uriOf(l), result, l)
}

// ToolResultAsPrompt returns the prompts/get result in the proxy tool's answer to the call of a prompt.
func ToolResultAsPrompt(result json.RawMessage) (json.RawMessage, error) {
	d, err := Decode(result)
	if err != nil {
		return nil, err
	}
	if d.Label.Type != TypePrompt || d.Label.Action != ActionCall || len(d.Items) != 1 {
		return nil, fmt.Errorf("%w: not the result of a prompt", ErrNoAnswer)
	}
	return d.Items[0], nil
}

// ToolResultAsResource returns the resources/read result in the proxy tool's answer to the call of a
// resource. It undoes ResourceAsToolContent, but JSON text stays compact. Members that only tools'
// results have are removed.
func ToolResultAsResource(result json.RawMessage) (json.RawMessage, error) {
	if err := usable(result); err != nil {
		return nil, err
	}
	if !hasContent(result) {
		result = unannotate(result)
	}
	contents := []json.RawMessage{}
	for item := range rawjson.Elements(rawjson.Member(result, "content")) {
		label, _ := LabelOf(item)
		resource := rawjson.Member(item, "resource")
		if label.Type != TypeResource || label.Action != ActionCall || !rawjson.IsObject(resource) {
			return nil, fmt.Errorf("%w: content that is not of a resource", ErrNoAnswer)
		}
		contents = append(contents, restore(resource, rawjson.Member(rawjson.Member(item, "_meta"), keyProxied)))
	}
	return swap(result, "content", "contents", rawjson.Array(contents), "isError", "structuredContent"), nil
}

// ToolResultUnlabelled returns the tool's own result from the proxy tool's answer to its call: the
// inverse of Annotate for each content item, or for the result without content.
func ToolResultUnlabelled(result json.RawMessage) json.RawMessage {
	if !hasContent(result) {
		return unannotate(result)
	}
	return eachContent(result, unannotate)
}

// eachContent is a tool's result with each content item changed by f.
func eachContent(result json.RawMessage, f func(item json.RawMessage) json.RawMessage) json.RawMessage {
	old := rawjson.Member(result, "content")
	if old == nil || old[0] != '[' {
		return result
	}
	content := []json.RawMessage{}
	for item := range rawjson.Elements(old) {
		content = append(content, f(item))
	}
	return set(result, "content", rawjson.Array(content))
}

// Decoded is the answer of a proxy tool to a list, an info, the call of a prompt
// or a batch.
type Decoded struct {
	Label Label
	// Items are the objects as sent; one unless Label.Many.
	Items []json.RawMessage
}

// Decode reads an answer of a proxy tool by its annotations (or _meta, if a program dropped them). The
// type is dataType or pythonType, written simply, qualified ("mcp.types.Tool") or as a union with or
// without spaces, else proxyType.
func Decode(result json.RawMessage) (*Decoded, error) {
	if err := usable(result); err != nil {
		return nil, err
	}
	var item json.RawMessage
	items := 0
	for item = range rawjson.Elements(rawjson.Member(result, "content")) {
		items++
	}
	label, labelled := LabelOf(item)
	resource := rawjson.Member(item, "resource")
	data := json.RawMessage(rawjson.Text(rawjson.Member(resource, "text")))
	switch {
	case items != 1:
		return nil, fmt.Errorf("%w: %d content items instead of one", ErrNoAnswer, items)
	case !labelled:
		return nil, fmt.Errorf("%w: content without its annotations", ErrNoAnswer)
	case rawjson.Text(rawjson.Member(resource, "mimeType")) != "application/json" || !json.Valid(data):
		return nil, fmt.Errorf("%w: content that is not JSON", ErrNoAnswer)
	}
	if err := label.fit(); err != nil {
		return nil, err
	}
	return decoded(label, data)
}

func decoded(label Label, data json.RawMessage) (*Decoded, error) {
	d := &Decoded{Label: label, Items: []json.RawMessage{}}
	switch {
	case label.Many == nil || !*label.Many:
		d.Items = append(d.Items, data)
	case bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")):
		d.Items = slices.AppendSeq(d.Items, rawjson.Elements(data))
	default:
		return nil, fmt.Errorf("%w: many that are no array", ErrNoAnswer)
	}
	for _, item := range d.Items {
		if !rawjson.IsObject(item) {
			return nil, fmt.Errorf("%w: an item that is no object", ErrNoAnswer)
		}
	}
	return d, nil
}

// fit normalizes Data, and fails if it does not suit the operation.
func (l *Label) fit() error {
	want := ""
	switch {
	case l.Action == ActionBatch:
		want = DataToolResult
	case l.Action == ActionCall && l.Type == TypePrompt:
		want = DataPromptResult
	case l.Action == ActionCall:
		return fmt.Errorf("%w: the result of a call says nothing of its type", ErrNoAnswer)
	case l.Action != ActionList && l.Action != ActionInfo, !slices.Contains(types, string(l.Type)):
		return fmt.Errorf("%w: action %q of type %q", ErrNoAnswer, rawjson.Clip(string(l.Action), maxShown), rawjson.Clip(string(l.Type), maxShown))
	default:
		want = dataOf(l.Type)
	}
	if l.Data != "" && !sameData(l.Data, want) {
		return fmt.Errorf("%w: data of type %q instead of %q", ErrNoAnswer, rawjson.Clip(l.Data, maxShown), want)
	}
	l.Data = want
	return nil
}

// sameData reports whether each type of a union is in want.
func sameData(said, want string) bool {
	known := unionOf(want)
	return !slices.ContainsFunc(unionOf(said), func(part string) bool { return !slices.Contains(known, part) })
}

func unionOf(identifier string) []string {
	parts := strings.Split(identifier, "|")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part[strings.LastIndexByte(part, '.')+1:])
	}
	return parts
}

func isTemplate(item json.RawMessage) bool {
	return rawjson.Member(item, tool.KindTemplate.Key()) != nil
}

// usable refuses a result without readable content.
func usable(result json.RawMessage) error {
	switch {
	case !isObject(result):
		return fmt.Errorf("%w: not a result", ErrNoAnswer)
	case tool.Result(result).Failed():
		return fmt.Errorf("%w: it is an error: %s", ErrNoAnswer, rawjson.Text(tool.Result(result).Value()))
	case !tool.Result(result).Complete():
		return fmt.Errorf("%w: it is not complete", ErrNoAnswer)
	}
	return nil
}

// objectify makes a resource's text JSON if it can. proxied tells restore the old values; nil without a
// change.
func objectify(content json.RawMessage) (out, proxied json.RawMessage) {
	raw, mimeType := rawjson.Member(content, "text"), rawjson.Member(content, "mimeType")
	text := rawjson.Text(raw)
	var compact bytes.Buffer
	switch {
	case raw == nil, rawjson.Member(content, "contentType") != nil, // the element's own contentType would be lost
		strings.ContainsRune(text, utf8.RuneError), // half a surrogate or an odd byte would change
		json.Compact(&compact, []byte(text)) != nil:
		return content, nil
	}
	out = set(content, "text", rawjson.Quote(compact.String()))
	out = set(out, "mimeType", []byte(`"application/json"`))
	var was rawjson.Object
	if mimeType != nil {
		was.Add("mimeType", mimeType)
		if string(mimeType) != "null" {
			out = set(out, "contentType", mimeType)
		}
	}
	return out, was.JSON()
}

// restore undoes objectify.
func restore(content, proxied json.RawMessage) json.RawMessage {
	if proxied == nil {
		return content
	}
	mimeType := rawjson.Member(proxied, "mimeType")
	var out rawjson.Object
	for key, value := range rawjson.Members(content) {
		switch {
		case key == "contentType", key == "mimeType" && mimeType == nil:
		case key == "mimeType":
			out.Add(key, mimeType)
		default:
			out.Add(key, value)
		}
	}
	return out.JSON()
}

func set(object json.RawMessage, name string, value []byte) json.RawMessage {
	if with, err := rawjson.Set(object, name, value); err == nil {
		return with
	}
	return object
}

// swap replaces the member old of an object by another, in its place, and removes the members in drop.
// Without old the new member comes last.
func swap(object json.RawMessage, old, name string, value json.RawMessage, drop ...string) json.RawMessage {
	var out rawjson.Object
	done := false
	for key, member := range rawjson.Members(object) {
		switch {
		case key == old && !done:
			out.Add(name, value)
			done = true
		case key != old && key != name && !slices.Contains(drop, key):
			out.Add(key, member)
		}
	}
	if !done {
		out.Add(name, value)
	}
	return out.JSON()
}

func embed(resource, label, proxied json.RawMessage) json.RawMessage {
	meta := label
	if proxied != nil {
		var with rawjson.Object
		with.AddAll(label)
		with.Add(keyProxied, proxied)
		meta = with.JSON()
	}
	var out rawjson.Object
	out.AddText("type", "resource")
	out.Add("resource", resource)
	out.Add("annotations", label)
	out.Add("_meta", meta)
	return out.JSON()
}

// embedJSON embeds data as the text of a resource.
func embedJSON(uri string, data json.RawMessage, l Label) json.RawMessage {
	var resource rawjson.Object
	resource.AddText("uri", uri)
	resource.AddText("mimeType", "application/json")
	resource.Add("text", rawjson.Quote(string(data)))
	return embed(resource.JSON(), l.object(), nil)
}

// uriOf is the URI of an answer's embedded resource: "proxy:list/tool", "proxy:info/tool/NAME",
// "proxy:call/prompt/NAME", "proxy:batch".
func uriOf(l Label) string {
	uri := "proxy:" + string(l.Action)
	if l.Type != "" {
		uri += "/" + string(l.Type)
	}
	if l.Path != "" {
		uri += "/" + escape(l.Path)
	}
	return uri
}

// notInURI matches characters that a URI cannot have, and escapes, which stay: a path may be a URI.
var notInURI = regexp.MustCompile(`%[0-9A-Fa-f]{2}|(?s:[^-A-Za-z0-9._~:/?#@!$&'()*+,;=])`)

func escape(path string) string {
	return notInURI.ReplaceAllStringFunc(path, func(found string) string {
		if len(found) == 3 && found[0] == '%' {
			return found
		}
		return url.PathEscape(found)
	})
}
