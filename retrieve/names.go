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

// maxName is the longest name that all known model providers accept; maxShort leaves room for the prefix that clients
// put in front of it.
const (
	maxName  = 64
	maxShort = maxName - len("mcp__toolfinch__")
)

var notInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// maxQualified is the longest "server.tool" that is well-formed, and the longest "server:tool" that is looked up,
// in bytes.
const maxQualified = 512

// qualified matches names that may be "server.tool" or "server:tool".
var qualified = regexp.MustCompile(`^[\pL\pN][\pL\pN_./@: -]*[.:][^\s\pC]+$`)

// wellFormed reports whether a tool could have the name in one of the forms that table.find accepts.
func wellFormed(name string) bool {
	return name != "" && len(name) <= maxName && !notInName.MatchString(name) ||
		len(name) <= maxQualified && qualified.MatchString(name)
}

// table finds tools by name and ID.
type table struct {
	tools     layered[string] // by exposed name
	exact     layered[tool.ID]
	also      map[tool.ID][]*tool.Tool // further tools of an ID, from other views
	contested map[string]bool          // names that no tool got, because they are too long or several tools would get them
}

// newTable names the tools of servers. No tool gets a reserved name.
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

// renamed returns a copy of t under another name.
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

// Finder returns a function that finds the tools of servers like Catalog.Find, under the names that a catalog of
// all of them gives.
func Finder(servers []Server) func(name string) (*tool.Tool, bool) {
	return newTable(servers, Reserved()).find
}

// namesFor names every tool {server}_{tool}, in the characters ^[a-zA-Z0-9_-]{1,64}$. A prefix replaces the
// server's name; "" leaves the tool's own name. A name that is too long, reserved, claimed by several tools, or
// equal to another tool's hashed name ends in a hash of the ID instead. Each claimant gets a hash, so that the
// result does not depend on the order. Tools and prompts are named separately.
func namesFor(ids []tool.ID, reserved []string, prefix map[string]string) map[tool.ID]string {
	names := make(map[tool.ID]string, len(ids))
	all, _ := namesOf(ids, reserved, prefix)
	for i, name := range all {
		names[ids[i]] = name
	}
	return names
}

// namesOf is namesFor in the order of ids. contested has the names that were replaced by hashed ones.
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
		names[i] = withHash(plain[i], ids[i], maxName)
		hashed[names[i]], contested[plain[i]] = true, true
	}
	for i, name := range plain {
		if len(name) > maxName || claims[name] > 1 {
			give(i)
		}
	}
	for before := 0; before < len(hashed); { // a hashed name may be the plain name of another tool
		before = len(hashed)
		for i, name := range plain {
			if names[i] == name && hashed[name] {
				give(i)
			}
		}
	}
	return names, contested
}

// MayName reports whether a name may belong to a tool of the server that is not known.
func (s Server) MayName(name string) bool {
	prefix := inName(s.Name)
	if s.Prefix != nil {
		prefix = *s.Prefix
	}
	return Absent{Server: s.Name, Prefix: prefix}.mayHave(name)
}

// inName replaces characters that names must not have.
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

// hashLength is the length of what withHash adds.
const hashLength = 9

// withHash ends name in 8 hex digits (32 bits) of the SHA-256 of the ID, within most bytes.
func withHash(name string, id tool.ID, most int) string {
	sum := sha256.Sum256([]byte(id.Server + "\x00" + id.Name))
	suffix := "_" + hex.EncodeToString(sum[:4])
	if room := most - len(suffix); len(name) > room {
		name = strings.TrimRight(name[:room], "_-")
	}
	return name + suffix
}

// ShortName returns the name of a tool for clients that put a prefix in front of it.
func ShortName(t *tool.Tool) string {
	if len(t.Name) <= maxShort {
		return t.Name
	}
	return withHash(t.Name, t.Def.ID, maxShort)
}

// Clash is a configured name that displaces another tool's default name, and the ID of that tool.
type Clash struct {
	Name string
	ID   tool.ID
}

// Clashes returns the configured names, and names of meta-tools, that displace default names of other tools.
func Clashes(servers []Server, meta ...string) []Clash {
	named := slices.ContainsFunc(meta, func(name string) bool { return name != "" })
	for i := range servers {
		named = servers[i].summarize().named || named
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
