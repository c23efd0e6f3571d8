package audit

import (
	"bytes"
	"encoding/json"
	"regexp"

	"toolfinch/internal/rawjson"
)

// Content is the function Content with the clean function of the log. A nil Log returns nil.
func (l *Log) Content(value []byte) json.RawMessage {
	if l == nil {
		return nil
	}
	return Content(value, l.clean)
}

// Content returns arguments or a result for a line. Members whose names suggest secrets are masked, and a long value
// becomes the beginning of its text. clean, unless nil, masks other secrets.
func Content(value []byte, clean func([]byte) []byte) json.RawMessage {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || len(value) > maxRedacted || !json.Valid(value) {
		return nil
	}
	out := []byte(redact(value, 0))
	if clean != nil {
		if cleaned := clean(out); json.Valid(cleaned) {
			out = cleaned
		} else {
			return rawjson.Quote(masked)
		}
	}
	if len(out) > maxContent {
		return rawjson.Quote(rawjson.Head(string(out), maxContent) + "...")
	}
	return rawjson.OneLine(out)
}

// maxRedacted bounds the values that are searched for secrets, in bytes.
const maxRedacted = 1 << 20

const masked = "***"

// secretName matches the names of members with secrets.
var secretName = regexp.MustCompile(`(?i)pass(wd|word|phrase|code)?$|passw|secret|token|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|auth(orization)?$|bearer|credential|cookie|jwt|otp$|\bpin$|signature|connection[-_ ]?string|dsn$`)

// redact masks the values of secret members at any depth.
func redact(value []byte, depth int) json.RawMessage {
	const deepest = 64
	switch {
	case len(value) == 0:
		return nil
	case depth > deepest:
		return rawjson.Quote(masked)
	case value[0] == '{':
		var out rawjson.Object
		for name, member := range rawjson.Members(value) {
			if secretName.MatchString(name) && string(member) != "null" {
				member = rawjson.Quote(masked)
			} else {
				member = redact(member, depth+1)
			}
			out.Add(name, member)
		}
		return out.JSON()
	case value[0] == '[':
		var elements []json.RawMessage
		for element := range rawjson.Elements(value) {
			elements = append(elements, redact(element, depth+1))
		}
		return rawjson.Array(elements)
	}
	return json.RawMessage(value)
}
