package retrieve

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"toolfinch/tool"
)

// maxName is the longest name that all known clients accept.
const maxName = 64

var notInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// namesFor gives every tool the name clients see: {server}_{tool}, in the
// characters ^[a-zA-Z0-9_-]{1,64}$. Where prefix has the server, its value stands
// in the server's place; "" leaves the tool's own name. A name that is too long,
// reserved, or would fall to more than one tool ends in a hash of the tool's ID
// instead, for each of them, so that the result depends on the set of tools and
// not on its order; so does one that is another's name with a hash. Tools and
// prompts are named apart, each among themselves.
func namesFor(ids []tool.ID, reserved []string, prefix map[string]string) map[tool.ID]string {
	claims := make(map[string]int, len(ids)+len(reserved))
	for _, name := range reserved {
		claims[name]++
	}
	plain := make([]string, len(ids))
	for i, id := range ids {
		plain[i] = notInName.ReplaceAllString(prefixed(id, prefix), "_")
		claims[plain[i]]++
	}
	names := make(map[tool.ID]string, len(ids))
	hashed := map[string]bool{}
	for more := true; more; {
		more = false
		for i, id := range ids {
			switch {
			case names[id] != "" && names[id] != plain[i]: // has a hash
			case len(plain[i]) > maxName || claims[plain[i]] > 1 || hashed[plain[i]]:
				names[id] = withHash(plain[i], id)
				hashed[names[id]] = true
				more = true // it may be the plain name of another
			default:
				names[id] = plain[i]
			}
		}
	}
	return names
}

func prefixed(id tool.ID, prefix map[string]string) string {
	before, given := prefix[id.Server]
	switch {
	case !given:
		before = id.Server
	case before == "":
		return id.Name
	}
	return before + "_" + id.Name
}

// withHash ends name in 8 hex digits (32 bits) of the ID's SHA-256.
func withHash(name string, id tool.ID) string {
	sum := sha256.Sum256([]byte(id.Server + "\x00" + id.Name))
	suffix := "_" + hex.EncodeToString(sum[:4])
	if room := maxName - len(suffix); len(name) > room {
		name = strings.TrimRight(name[:room], "_-")
	}
	return name + suffix
}
