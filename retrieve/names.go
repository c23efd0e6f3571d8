package retrieve

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"

	"toolfinch/tool"
)

// maxName is the longest name that all known clients accept.
const maxName = 64

var notInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// maxQualified is the longest "server.tool" that is not called malformed, in bytes,
// and the longest "server:tool" that is looked up.
const maxQualified = 512

// qualified are the names that may be "server.tool" or "server:tool".
var qualified = regexp.MustCompile(`^[\pL\pN][\pL\pN_./@: -]*[.:][^\s\pC]+$`)

// wellFormed reports whether a tool could have the name in one of the forms that
// table.find knows.
func wellFormed(name string) bool {
	return name != "" && len(name) <= maxName && !notInName.MatchString(name) ||
		len(name) <= maxQualified && qualified.MatchString(name)
}

// table finds tools by what they are called.
type table struct {
	tools     layered[string] // by exposed name
	exact     layered[tool.ID]
	also      map[tool.ID][]*tool.Tool // further tools of an ID, those of other views
	contested map[string]bool          // names that no tool has, because several would, or it is too long
}

// newTable names the tools of servers. None gets a name in reserved.
func newTable(servers []Server, reserved []string) table {
	ids, given, prefix := claims(servers)
	names, contested := namesOf(ids, slices.AppendSeq(slices.Clone(reserved), maps.Keys(given)), prefix)
	tools := make(map[string]*tool.Tool, len(names)+len(given))
	exact := make(map[tool.ID]*tool.Tool, len(names)+len(given))
	also := map[tool.ID][]*tool.Tool{}
	for _, s := range servers {
		for _, one := range s.Tools {
			if one.Def.ID.Kind != tool.KindTool {
				continue
			}
			if one.Name == "" {
				one, names = renamed(one, names[0]), names[1:]
			}
			tools[one.Name] = one
			if first := exact[one.Def.ID]; first != nil && first.Name != one.Name {
				also[one.Def.ID] = append(also[one.Def.ID], one)
				continue
			}
			exact[one.Def.ID] = one
		}
	}
	return table{layered[string]{all: tools}, layered[tool.ID]{all: exact}, also, contested}
}

// renamed is t under another name.
func renamed(t *tool.Tool, name string) *tool.Tool {
	named := *t
	named.Name = name
	return &named
}

// find finds a tool by its exposed name, else by "server.name", else by "server:name"
// (the longest server first: names of servers may have dots and colons).
func (t table) find(name string) (*tool.Tool, bool) {
	if found := t.tools.get(name); found != nil {
		return found, true
	}
	if len(name) > maxQualified {
		return nil, false
	}
	for _, between := range []byte{'.', ':'} {
		for i := len(name) - 1; i > 0; i-- {
			if name[i] != between {
				continue
			}
			if found := t.exact.get(tool.ID{Server: name[:i], Name: name[i+1:]}); found != nil {
				return found, true
			}
		}
	}
	return nil, false
}

// Finder returns what finds the tools of servers as Catalog.Find does, under the names
// that a catalog of all of them gives.
func Finder(servers []Server) func(name string) (*tool.Tool, bool) {
	return newTable(servers, Reserved()).find
}

// namesFor gives every tool the name clients see: {server}_{tool}, in the
// characters ^[a-zA-Z0-9_-]{1,64}$. Where prefix has the server, its value stands
// in the server's place; "" leaves the tool's own name. A name that is too long,
// reserved, or would fall to more than one tool ends in a hash of the tool's ID
// instead, for each of them, so that the result depends on the set of tools and
// not on its order; so does one that is another's name with a hash. Tools and
// prompts are named apart, each among themselves.
func namesFor(ids []tool.ID, reserved []string, prefix map[string]string) map[tool.ID]string {
	names := make(map[tool.ID]string, len(ids))
	all, _ := namesOf(ids, reserved, prefix)
	for i, name := range all {
		names[ids[i]] = name
	}
	return names
}

// namesOf is namesFor with a name for each of ids, in their order, and the names that
// were not given to those that would have had them.
func namesOf(ids []tool.ID, reserved []string, prefix map[string]string) (names []string, contested map[string]bool) {
	claims := make(map[string]int, len(ids)+len(reserved))
	for _, name := range reserved {
		claims[name]++
	}
	plain := make([]string, len(ids))
	for i, id := range ids {
		plain[i] = inName(prefixed(id, prefix))
		claims[plain[i]]++
	}
	names, contested = slices.Clone(plain), map[string]bool{}
	hashed := map[string]bool{}
	give := func(i int) {
		names[i] = withHash(plain[i], ids[i])
		hashed[names[i]], contested[plain[i]] = true, true
	}
	for i, name := range plain {
		if len(name) > maxName || claims[name] > 1 {
			give(i)
		}
	}
	for before := 0; before < len(hashed); { // a name with a hash may be the plain name of another
		before = len(hashed)
		for i, name := range plain {
			if names[i] == name && hashed[name] {
				give(i)
			}
		}
	}
	return names, contested
}

// inName is a text with only what names may have.
func inName(text string) string {
	for i := range len(text) {
		if c := text[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return notInName.ReplaceAllString(text, "_")
		}
	}
	return text
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

// Clash is a configured name that displaces another tool's default name, and the ID
// of that other tool.
type Clash struct {
	Name string
	ID   tool.ID
}

// Clashes returns the configured names, and the names of meta-tools, that displace
// the default names of other tools.
func Clashes(servers []Server, meta ...string) []Clash {
	named := slices.ContainsFunc(meta, func(name string) bool { return name != "" })
	for i := range servers {
		named = servers[i].look().named || named
	}
	if !named {
		return nil
	}
	unnamed, given, prefix := claims(servers)
	for _, name := range meta {
		if name != "" {
			given[name] = true
		}
	}
	var clashes []Clash
	names, _ := namesOf(unnamed, nil, prefix)
	for i, name := range names {
		if given[name] {
			clashes = append(clashes, Clash{name, unnamed[i]})
		}
	}
	return clashes
}
