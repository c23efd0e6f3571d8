package page

import (
	"encoding/base64"
	"encoding/json"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// block is one part of a result as the page shows it.
type block struct {
	Number int    // number in the URL of the download
	Role   string // role of a prompt's message
	Kind   string // type of the content block
	Text   string
	Image  template.URL // data URL of an image; "" for other parts
	URI    string
	Link   string // URI, if the page may link to it; else ""
	Name   string
	Type   string // MIME
	Size   int    // bytes of the download; 0 for none
	More   int    // bytes that are cut from Text
	Why    string // why the part is not shown
}

// Bounds for shown results: blocks, and bytes of texts and images.
const (
	maxBlocks = 100
	maxText   = 128 << 10
	maxImage  = 8 << 20
)

// images are the image types that the page shows, as http.DetectContentType names them. SVG is missing, because an SVG
// image that is saved from the page can run scripts.
var images = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// blocksOf returns the parts of a result, and how many are left out. Structured content is a part unless a text has the
// same value.
func blocksOf(kind tool.Kind, result tool.Result) (all []block, more int) {
	raw := json.RawMessage(result)
	structured := member(raw, "structuredContent")
	take := func(content json.RawMessage, role string) {
		if len(all) >= maxBlocks {
			more++
			return
		}
		all = append(all, blockOf(content, role, len(all)))
	}
	said := structured == nil
	for _, one := range contentsOf(kind, raw) {
		take(one.content, one.role)
		said = said || says(json.RawMessage(rawjson.Text(member(one.content, "text"))), structured)
	}
	if !said {
		b := block{Kind: "structured content"}
		b.say(string(structured))
		all = append(all, b)
	}
	return all, more
}

type content struct {
	content json.RawMessage
	role    string
}

// contentsOf returns the content blocks of a result. Contents of a resource become embedded resources.
func contentsOf(kind tool.Kind, result json.RawMessage) (all []content) {
	switch kind {
	case tool.KindPrompt:
		for message := range rawjson.Elements(list(member(result, "messages"))) {
			all = append(all, content{member(message, "content"), rawjson.Text(member(message, "role"))})
		}
	case tool.KindResource, tool.KindTemplate, tool.KindSkill:
		for one := range rawjson.Elements(list(member(result, "contents"))) {
			var b rawjson.Object
			b.AddText("type", "resource")
			b.Add("resource", one)
			all = append(all, content{b.JSON(), ""})
		}
	default:
		for one := range rawjson.Elements(list(member(result, "content"))) {
			all = append(all, content{one, ""})
		}
	}
	return all
}

func blockOf(raw json.RawMessage, role string, number int) block {
	text := func(name string) string { return rawjson.Text(member(raw, name)) }
	b := block{Number: number, Role: role, Kind: text("type"), Type: rawjson.Clip(text("mimeType"), 100)}
	switch b.Kind {
	case "text":
		b.say(text("text"))
	case "image", "audio":
		b.data(text("data"), b.Kind == "image")
	case "resource_link":
		b.Name, b.URI = rawjson.Clip(text("name"), 200), rawjson.Clip(text("uri"), 2000)
		b.Text = rawjson.Clip(text("description"), 1000)
	case "resource":
		of := member(raw, "resource")
		b.URI, b.Type = rawjson.Clip(rawjson.Text(member(of, "uri")), 2000), rawjson.Clip(rawjson.Text(member(of, "mimeType")), 100)
		if blob := member(of, "blob"); blob != nil {
			b.data(rawjson.Text(blob), true)
		} else {
			b.say(rawjson.Text(member(of, "text")))
		}
	default:
		b.Kind = rawjson.Clip(b.Kind, 40)
		b.say(string(raw))
	}
	b.Link = followed(b.URI)
	return b
}

// followed returns the URI if the page may link to it, else "".
func followed(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return uri
}

// say sets the text of a block. JSON is indented.
func (b *block) say(text string) {
	b.Text = text
	if trimmed := strings.TrimSpace(text); len(trimmed) > 1 && len(trimmed) < maxText && (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid([]byte(trimmed)) {
		b.Text = indented(json.RawMessage(trimmed))
	}
	if len(b.Text) > maxText {
		b.More = len(b.Text) - maxText
		b.Text = rawjson.Head(b.Text, maxText)
	}
}

// says reports whether a text equals the structured content, or its only member.
func says(text, structured json.RawMessage) bool {
	if equal(structured, text) {
		return true
	}
	members, only := 0, structured
	if rawjson.IsObject(structured) {
		for _, value := range rawjson.Members(structured) {
			members, only = members+1, value
		}
	}
	return members == 1 && equal(only, text)
}

// data sets the size of a block from its base64 data, and the image if its type may be shown.
func (b *block) data(text string, image bool) {
	content, ok := decoded(text)
	if !ok {
		b.Why = "it is no base64"
		return
	}
	b.Size = len(content)
	found := http.DetectContentType(content)
	switch {
	case !image || !strings.HasPrefix(b.Type, "image/"):
	case b.Size > maxImage:
		b.Why = "it is too large to show"
	case !slices.Contains(images, found):
		b.Why = "it is no PNG, JPEG, GIF or WebP"
	default:
		b.Image = template.URL("data:" + found + ";base64," + base64.StdEncoding.EncodeToString(content)) //nolint:gosec // encoded here
	}
}

// decoded decodes standard or URL-safe base64, with or without padding.
func decoded(text string) ([]byte, bool) {
	text = strings.TrimRight(strings.Join(strings.Fields(text), ""), "=")
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if content, err := encoding.DecodeString(text); err == nil {
			return content, true
		}
	}
	return nil, false
}

// resultScreen serves downloads of results: a whole result as JSON, or the data of a block.
var resultScreen = &screen{Path: "result", title: "Result", file: "catalogue.html", raw: serveResult}

func serveResult(q *request) {
	one := q.server.runs.find(q.session, q.URL.Query().Get("run"))
	if one == nil || !one.ended() {
		http.Error(q.w, "there is no such result", http.StatusNotFound)
		return
	}
	result := one.result
	if result == nil {
		http.Error(q.w, "there is no such result", http.StatusNotFound)
		return
	}
	body, typ, name := []byte(result), "application/json", "result.json"
	if at := q.URL.Query().Get("block"); at != "" {
		n, err := strconv.Atoi(at)
		all := contentsOf(one.Of.Kind, json.RawMessage(result))
		if err != nil || n < 0 || n >= len(all) {
			http.Error(q.w, "there is no such part", http.StatusNotFound)
			return
		}
		if body, typ, name = download(all[n].content, n); body == nil {
			http.Error(q.w, "this part is no data", http.StatusNotFound)
			return
		}
	}
	h := q.w.Header()
	h.Set("Content-Type", typ)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("Content-Length", strconv.Itoa(len(body)))
	q.write(body)
}

// download returns the data of a block, with type and name of the file. It keeps the server's type only if it is a
// known type of sounds or images.
func download(raw json.RawMessage, n int) (body []byte, typ, name string) {
	said, data := member(raw, "mimeType"), member(raw, "data")
	if of := member(raw, "resource"); of != nil {
		said, data = member(of, "mimeType"), member(of, "blob")
	}
	if data == nil {
		return nil, "", ""
	}
	body, ok := decoded(rawjson.Text(data))
	if !ok {
		return nil, "", ""
	}
	typ, name = "application/octet-stream", "part-"+strconv.Itoa(n+1)
	for of, ending := range map[string]string{"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/webm": ".webm", "audio/mp4": ".m4a", "audio/flac": ".flac",
		"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"} {
		if rawjson.Text(said) == of {
			return body, of, name + ending
		}
	}
	return body, typ, name
}
