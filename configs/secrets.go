package configs

import (
	"regexp"
	"slices"
	"strings"
	"toolfinch/internal/document"
	"unicode"
)

// mask is printed in place of a secret.
const mask = "***"

// secrets are the values of variables with names of secrets.
type secrets struct {
	texts  map[string]string // whole texts, by text before masking
	values []string          // values of the variables, the longest first
}

// minSecret is the shortest value that is masked inside of other texts, in bytes. Shorter
// values occur in too many words.
const minSecret = 5

// note remembers the text of n with its variables replaced.
func (s *secrets) note(n *document.Node, text string, env lookup) {
	if s == nil || !hasVariables(n) {
		return
	}
	found := false
	masked, err := expand(n.Text, func(name string) (string, bool) {
		value, set := env(name)
		if !isSecretName(name) {
			return value, set
		}
		found = true
		if len(value) >= minSecret && !slices.Contains(s.values, value) {
			s.values = append(s.values, value)
		}
		return mask, true
	})
	if !found || err != nil {
		return
	}
	if s.texts == nil {
		s.texts = make(map[string]string)
	}
	s.texts[text] = masked
	slices.SortStableFunc(s.values, func(a, b string) int { return len(b) - len(a) })
}

// orNil returns nil if there is nothing to mask.
func (s *secrets) orNil() *secrets {
	if s == nil || s.texts == nil {
		return nil
	}
	return s
}

// known masks the values of secret variables in a text.
func (s *secrets) known(text string) string {
	if s == nil {
		return text
	}
	if masked, ok := s.texts[text]; ok {
		return masked
	}
	for _, value := range s.values {
		text = strings.ReplaceAll(text, value, mask)
	}
	return text
}

// prose masks secret variables, URLs and tokens in a text for readers.
func (s *secrets) prose(text string) string {
	text = s.known(text)
	text = urlForm.ReplaceAllStringFunc(text, maskURL)
	text = dsnForm.ReplaceAllString(text, "${1}:"+mask+"@$2")
	text = schemeForm.ReplaceAllString(text, "$1 "+mask)
	return tokenForm.ReplaceAllString(text, mask)
}

// word masks one argument, or a whole shell command: as prose, and values after names of
// secrets.
func (s *secrets) word(text string) string {
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if root, bad := document.ParseJSON([]byte(text)); bad == nil {
			return string(s.tree(root, "", ofData).JSON())
		}
	}
	text = s.prose(text)
	for _, form := range []*regexp.Regexp{assignForm, flagForm} {
		text = form.ReplaceAllStringFunc(text, func(match string) string {
			parts := form.FindStringSubmatch(match)
			scheme := strings.EqualFold(parts[3], "Bearer") || strings.EqualFold(parts[3], "Basic") // the value follows the scheme
			if scheme || !isSecretName(parts[1]) || strings.HasPrefix(parts[3], mask) {
				return match
			}
			return parts[1] + parts[2] + maskValue(parts[3])
		})
	}
	return text
}

// words masks the arguments of a command.
func (s *secrets) words(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		before := ""
		if i > 0 {
			before = args[i-1]
		}
		name, isFlag := strings.CutPrefix(before, "-")
		switch {
		case isFlag && !strings.ContainsAny(before, "= ") && isSecretName(name) && arg != "":
			out[i] = maskValue(s.known(arg))
		case before == "-H" || before == "--header":
			out[i] = pairForm.ReplaceAllStringFunc(arg, func(pair string) string {
				parts := pairForm.FindStringSubmatch(pair)
				return parts[1] + parts[2] + maskValue(parts[3])
			})
		case before == "-e" || before == "--env": // docker
			if name, value, ok := strings.Cut(arg, "="); ok && value != "" {
				out[i] = name + "=" + mask
				continue
			}
			out[i] = s.word(arg)
		default:
			out[i] = s.word(arg)
		}
	}
	return out
}

var (
	urlForm = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>` + "`" + `]+`)
	// user:password@tcp(host:port), as in drivers of databases
	dsnForm    = regexp.MustCompile(`([^\s:/@]+):[^\s@]+@(\w+\()`)
	schemeForm = regexp.MustCompile(`(?i)\b(Bearer|Basic) +[^\s"',;]+`)
	tokenForm  = regexp.MustCompile(`\b(?:sk-|rk_|ghp_|gho_|ghu_|ghs_|github_pat_|glpat-|xox[abeprs]-|xapp-|AKIA|ntn_|secret_|npm_|hf_|lin_api_|pk_|eyJ)[A-Za-z0-9_.-]{12,}`)
	assignForm = regexp.MustCompile(`([A-Za-z0-9_.-]+)( ?[=:] ?)("[^"]*"|'[^']*'|[^\s"']+)`)
	flagForm   = regexp.MustCompile(`(--?[A-Za-z0-9_.-]+)( +)("[^"]*"|'[^']*'|[^\s"'-][^\s"']*)`)
	pairForm   = regexp.MustCompile(`^([^:=\s]+)( ?[=:] ?)(.*)$`)
	authScheme = regexp.MustCompile(`^([A-Za-z]+) +\S`)
)

// maskValue masks a value of env or headers, but not a scheme: "Bearer ***".
func maskValue(value string) string {
	if value == "" {
		return ""
	}
	for _, scheme := range []string{"bearer", "basic", "token", "digest", "apikey"} {
		if parts := authScheme.FindStringSubmatch(value); parts != nil && strings.EqualFold(parts[1], scheme) {
			return parts[1] + " " + mask
		}
	}
	return mask
}

// secretWords are words in names of secrets.
var secretWords = []string{
	"key", "keys", "token", "tokens", "pass", "pwd", "pat", "auth", "authorization", "bearer", "cookie", "cookies",
	"dsn", "signature", "sig", "private", "session", "jwt", "pin", "otp", "salt",
}

// secretParts are parts of words in names of secrets.
var secretParts = []string{"secret", "password", "passwd", "passphrase", "apikey", "accesskey", "privatekey", "credential", "accesstoken", "authtoken"}

// isSecretName reports whether a variable, flag, header or parameter is likely to hold a
// secret. In doubt it says yes.
func isSecretName(name string) bool {
	switch name {
	case "PWD", "OLDPWD": // working directories
		return false
	}
	words := nameWords(name)
	if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(secretWords, w) }) {
		return true
	}
	joined := strings.Join(words, "")
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(joined, part) })
}

// nameWords splits apiKey, API_KEY and x-api-key into words in lower case.
func nameWords(name string) []string {
	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	lower := false
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end()
			lower = false
			continue
		}
		if lower && unicode.IsUpper(r) {
			end()
		}
		lower = unicode.IsLower(r)
		word.WriteRune(unicode.ToLower(r))
	}
	end()
	return words
}

// maskURL masks password, query and keys in the path of a URL. It takes the text apart
// itself, because an invalid URL may hold a secret, too.
func maskURL(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	// A password may hold an unescaped /; it is then no port of digits.
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		end = len(rest)
	}
	if _, port, found := strings.Cut(rest[:end], ":"); found && !isDigits(port) && !strings.HasPrefix(rest, "[") {
		end = len(rest)
	}
	var b strings.Builder
	b.WriteString(scheme + "://")
	if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
		if user, _, found := strings.Cut(rest[:at], ":"); found && user != "" {
			b.WriteString(user + ":")
		}
		b.WriteString(mask + "@")
		rest = rest[at+1:]
	}
	host, path, hasPath := strings.Cut(rest, "/")
	b.WriteString(host)
	if hasPath {
		segments := strings.Split(path, "/")
		for i, segment := range segments {
			if looksRandom(segment) {
				segments[i] = mask
			}
		}
		b.WriteString("/" + strings.Join(segments, "/"))
	}
	if hasQuery {
		pairs := strings.Split(query, "&")
		for i, p := range pairs {
			name, value, found := strings.Cut(p, "=")
			switch {
			case found && value != "":
				pairs[i] = name + "=" + mask
			case !found && p != "": // may be a key
				pairs[i] = mask
			}
		}
		b.WriteString("?" + strings.Join(pairs, "&"))
	}
	if hasFragment && fragment != "" {
		b.WriteString("#" + mask)
	}
	return b.String()
}

// url masks a URL.
func (s *secrets) url(raw string) string {
	if raw == "" {
		return ""
	}
	return maskURL(s.known(raw))
}

// looksRandom reports whether a segment of a path may be a key: long, with letters and
// digits.
func looksRandom(s string) bool {
	const long = 20
	letters, digits := strings.ContainsFunc(s, unicode.IsLetter), strings.ContainsAny(s, "0123456789")
	return len(s) >= long && letters && digits && !strings.Contains(s, "{")
}

// shape says whether a tree of JSON is data or a JSON Schema.
type shape int

const (
	ofData   shape = iota // every value below a secret name is secret
	ofSchema              // of a JSON Schema, only values such as default are
)

// schemaValues are the keywords of JSON Schema that hold values.
var schemaValues = []string{"default", "const", "enum", "examples", "example"}

// tree returns the value of a name with secrets masked.
func (s *secrets) tree(n *document.Node, name string, of shape) *document.Node {
	return s.mask(n, of, of == ofData && isSecretName(name), isSecretName(name))
}

// mask masks secrets in n, and everything if hide. named: n is the schema of a secret.
func (s *secrets) mask(n *document.Node, of shape, hide, named bool) *document.Node {
	out := *n
	switch n.Kind {
	case document.Text:
		out.Text = s.prose(n.Text)
		if hide {
			out.Text = maskValue(n.Text)
		}
	case document.Number:
		if hide {
			out.Kind, out.Text = document.Text, mask
		}
	case document.List:
		out.Items = make([]*document.Node, len(n.Items))
		for i, item := range n.Items {
			out.Items[i] = s.mask(item, of, hide, named)
		}
	case document.Mapping:
		out.Pairs = make([]document.Pair, len(n.Pairs))
		for i, p := range n.Pairs {
			key := p.Key.Text
			secret := isSecretName(key)
			if countsTokens(key, p.Value) {
				secret = false
			}
			switch {
			case of == ofData || hide:
				out.Pairs[i] = document.Pair{Key: p.Key, Value: s.mask(p.Value, ofData, hide || secret, false)}
			case slices.Contains(schemaValues, key):
				out.Pairs[i] = document.Pair{Key: p.Key, Value: s.mask(p.Value, ofData, named, false)}
			default:
				out.Pairs[i] = document.Pair{Key: p.Key, Value: s.mask(p.Value, ofSchema, false, named || secret)}
			}
		}
	}
	return &out
}

// countsTokens reports whether a number is a bound of tokens, not a secret token.
func countsTokens(name string, n *document.Node) bool {
	return n.Kind == document.Number && slices.Contains(nameWords(name), "tokens")
}

// json returns the JSON value of a name as a tree with secrets masked, nil for nil.
func (s *secrets) json(raw []byte, name string, of shape) *document.Node {
	if raw == nil {
		return nil
	}
	n, _ := document.ParseJSON(raw) // it was checked before
	if countsTokens(name, n) {
		name = ""
	}
	return s.tree(n, name, of)
}
