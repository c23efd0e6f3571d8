package pins

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Warning is a suspicious part of a definition, for the owner. It does not hold the definition.
type Warning struct {
	Kind WarningKind
	Text string // one line, all visible
}

func (w Warning) String() string { return string(w.Kind) + ": " + w.Text }

// WarningKind is the kind of a Warning.
type WarningKind string

// The kinds.
const (
	HiddenText  WarningKind = "hidden text"       // invisible characters, or characters that reorder text
	ToTheModel  WarningKind = "speaks to a model" // tells a model to ignore, conceal or read something
	Encoded     WarningKind = "encoded command"   // text that decodes to a shell command
	maxWarnings             = 10                  // of one definition
	maxShown                = 160                 // bytes of an excerpt
)

// Warn returns the warnings about a definition, or about a server's instructions. It knows a few signs that honest
// definitions lack; most malicious definitions lack them, too.
func Warn(kind tool.Kind, raw json.RawMessage) []Warning {
	found := textWarnings(textOf(kind, raw))
	return found[:min(len(found), maxWarnings)]
}

// textOf returns all texts of a definition, and the names of its members, each on its own line.
func textOf(kind tool.Kind, raw json.RawMessage) string {
	if kind == tool.KindInstructions {
		return string(raw)
	}
	var out strings.Builder
	var walk func(raw json.RawMessage)
	walk = func(raw json.RawMessage) {
		switch raw[0] {
		case '"':
			out.WriteString(rawjson.Text(raw) + "\n")
		case '{':
			for name, value := range rawjson.Members(raw) {
				if name == "icons" || name == "$ref" {
					continue
				}
				out.WriteString(name + "\n")
				walk(value)
			}
		case '[':
			for value := range rawjson.Elements(raw) {
				walk(value)
			}
		}
	}
	walk(raw)
	return out.String()
}

func textWarnings(text string) []Warning {
	found := hidden(text)
	plain := text
	if len(found) > 0 { // hidden characters can spell text, or divide a word
		plain = revealed(text)
	}
	for _, sign := range signs {
		if at := sign.FindStringIndex(plain); at != nil && !strings.HasSuffix(plain[at[0]:at[1]], ".pub") { // a public key is no secret
			found = append(found, Warning{ToTheModel, excerpt(plain, at[0], at[1])})
		}
	}
	return append(found, encoded(plain)...)
}

// excerpt quotes a place in a text, with some of the line around it.
func excerpt(text string, from, to int) string {
	const beside = 40
	line, rest := strings.LastIndexByte(text[:from], '\n')+1, strings.IndexByte(text[to:], '\n')
	if rest < 0 {
		rest = len(text) - to
	}
	start, end := max(line, from-beside), min(to+rest, to+beside)
	for start > 0 && !utf8.RuneStart(text[start]) {
		start--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	return quoted(text[start:end])
}

func quoted(text string) string {
	return `"` + Visible(rawjson.Clip(strings.Join(strings.Fields(text), " "), maxShown)) + `"`
}

// signs match instructions to a model. They match none of 1,135 definitions of published servers.
var signs = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(ignore|disregard|forget|override|bypass)\b[^.\n]{0,30}\b(previous|prior|above|earlier|preceding|existing|system|all|any)\b[^.\n]{0,25}\b(instructions?|prompts?|rules|directions|guidelines|messages)\b`),
	regexp.MustCompile(`(?i)\b(do not|don't|never|must not|should not|without)\b[^.\n]{0,20}\b(tell|telling|inform|informing|mention|mentioning|notify|notifying|reveal|revealing|disclose|disclosing|alert|alerting)\b[^.\n]{0,40}\b(user|users|human|operator|owner)\b`),
	regexp.MustCompile(`(?i)\b(hide|conceal|keep)\b[^.\n]{0,30}\b(from|secret from|hidden from) the (user|human|operator)\b`),
	regexp.MustCompile(`(?i)<\s*(important|system)\s*>|<\s*/\s*(important|system|secret|hidden|admin|override|instructions?)\s*>`),
	regexp.MustCompile(`(?i)\[\s*(system|inst|admin)\s*\]|<\|(im_start|im_end|system|endoftext)\|>`),
	regexp.MustCompile(`(?i)(~|\$HOME|%USERPROFILE%|/root|/home/[\w.-]+)[/\\]\.(ssh|aws|gnupg|kube|netrc|npmrc|cursor|claude|codex|docker)\b([/\\][\w.-]*)?|\bid_(rsa|ed25519|ecdsa)\b(\.pub)?|/etc/shadow\b|\.cursor/mcp\.json`),
}

func hidden(text string) (found []Warning) {
	var tags, selectors strings.Builder
	var turned, wide []string
	add := func(to *[]string, r rune) {
		if name := fmt.Sprintf("U+%04X", r); !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	before := rune(-1)
	flag := false // within the tags of an emoji flag
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:]) // 1 for an invalid byte
		after, _ := utf8.DecodeRuneInString(text[i+size:])
		switch {
		case r == 0x1F3F4:
			flag = true
			before = r
			continue
		case 0xE0020 <= r && r <= 0xE007F:
			if !flag && r < 0xE007F {
				tags.WriteRune(r - 0xE0000)
			}
			before = r
			continue
		case 0xE0100 <= r && r <= 0xE01EF:
			selectors.WriteByte(byte(r - 0xE0100 + 16))
		case 0xFE00 <= r && r <= 0xFE0F && 0xFE00 <= before && before <= 0xFE0F:
			selectors.WriteByte(byte(r - 0xFE00))
		case 0x202A <= r && r <= 0x202E, 0x2066 <= r && r <= 0x2069:
			add(&turned, r)
		case r == 0x200B, 0x2060 <= r && r <= 0x2064, r == 0xFEFF && i > 0, r == 0x180E, r == 0x3164, r == 0x115F, r == 0x1160:
			add(&wide, r)
		case (r == 0x200C || r == 0x200D) && before < unicode.MaxASCII && after < unicode.MaxASCII:
			add(&wide, r)
		case unicode.Is(unicode.Cc, r) && r != '\n' && r != '\r' && r != '\t':
			add(&wide, r)
		}
		flag = false
		before = r
	}
	if tags.Len() > 0 {
		found = append(found, Warning{HiddenText, "in tag characters: " + quoted(tags.String())})
	}
	if selectors.Len() > 1 {
		said := selectors.String()
		if !utf8.ValidString(said) {
			said = fmt.Sprintf("%x", said)
		}
		found = append(found, Warning{HiddenText, "in variation selectors: " + quoted(said)})
	}
	if len(turned) > 0 {
		found = append(found, Warning{HiddenText, "characters that show text in another order: " + strings.Join(turned, ", ")})
	}
	if len(wide) > 0 {
		found = append(found, Warning{HiddenText, "characters without width: " + strings.Join(wide[:min(len(wide), 5)], ", ")})
	}
	return found
}

// revealed returns a text without invisible characters, followed by the text that its tag characters spell.
func revealed(text string) string {
	var tags strings.Builder
	plain := strings.Map(func(r rune) rune {
		switch {
		case 0xE0020 <= r && r < 0xE007F:
			tags.WriteRune(r - 0xE0000)
			return -1
		case odd(r) && r != '\n' && r != '\t' && r != '\r':
			return -1
		}
		return r
	}, text)
	return plain + "\n" + tags.String()
}

var (
	codes = []struct {
		text   *regexp.Regexp
		decode func(string) ([]byte, error)
	}{
		{regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}={0,2}`), fromBase64},
		{regexp.MustCompile(`\b(?:[0-9a-fA-F]{2}){20,}\b`), hex.DecodeString},
		{regexp.MustCompile(`(?:\\x[0-9a-fA-F]{2}){8,}`), func(text string) ([]byte, error) { return hex.DecodeString(strings.ReplaceAll(text, `\x`, "")) }},
		{regexp.MustCompile(`(?:%[0-9a-fA-F]{2}){8,}`), func(text string) ([]byte, error) { said, err := url.PathUnescape(text); return []byte(said), err }},
	}
	commands = regexp.MustCompile(`(?i)\b(curl|wget|bash|zsh|sh -c|powershell|pwsh|cmd(\.exe)? /c|nc -|ncat|python3? -c|node -e|perl -e|eval|exec|chmod|rm -rf|base64 -d|sudo|scp|ssh|invoke-webrequest|iex)\b|/bin/|https?://|\$\(|/etc/passwd|\.ssh/`)
)

func fromBase64(text string) ([]byte, error) {
	text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	return base64.RawStdEncoding.DecodeString(text[:len(text)-boolInt(len(text)%4 == 1)])
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// encoded finds texts that decode to commands.
func encoded(text string) (found []Warning) {
	for _, code := range codes {
		for _, word := range code.text.FindAllString(text, 50) {
			said, err := code.decode(word)
			if err == nil && isText(said) && commands.Match(said) {
				found = append(found, Warning{Encoded, quoted(string(said))})
				break
			}
		}
	}
	return found
}

func isText(data []byte) bool {
	for _, b := range data {
		if b >= utf8.RuneSelf || b < ' ' && b != '\n' && b != '\t' && b != '\r' {
			return false
		}
	}
	return len(data) > 0
}
