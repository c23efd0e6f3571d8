package schema

import (
	"strconv"
	"strings"
)

// unescape undoes the escapes of a JSON Pointer's tokens.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// At follows a JSON Pointer (RFC 6901) in a decoded value; false if it leads nowhere or is invalid.
func At(root any, pointer string) (value any, ok bool) {
	before, rest, deeper := strings.Cut(pointer, "/")
	if before != "" {
		return nil, false
	}
	for value = root; deeper; {
		var token string
		token, rest, deeper = strings.Cut(rest, "/")
		token = unescape.Replace(token)
		switch parent := value.(type) {
		case map[string]any:
			if value, ok = parent[token]; !ok {
				return nil, false
			}
		case []any:
			n, err := strconv.Atoi(token)
			if err != nil || n < 0 || n >= len(parent) {
				return nil, false
			}
			value = parent[n]
		default:
			return nil, false
		}
	}
	return value, true
}
