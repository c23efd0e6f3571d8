package pins

import (
	"regexp"
	"strings"
	"unicode"

	"toolfinch/tool"
)

// around a name, what tells a model to treat another tool otherwise.
var steers = regexp.MustCompile(`(?i)\b(instead of|rather than|before (using|calling|running)|after (using|calling|running)|whenever|when(ever)? you (use|call)|do not (use|call)|don't (use|call)|never (use|call)|must (be|always|also|use|call|first)|always (use|call|pass|set|add)|replaces?|overrides?|deprecated|disabled)\b`)

// neighbourhood is what servers have beside each other.
type neighbourhood struct {
	byName map[string][]Definition    // tools
	owners map[string]map[string]bool // servers by a tool's name, of names that are no words
}

const maxNeighbours = 20 // definitions of one name that are compared

func neighbours(all []Definition) neighbourhood {
	n := neighbourhood{map[string][]Definition{}, map[string]map[string]bool{}}
	for _, d := range all {
		if d.ID.Kind != tool.KindTool {
			continue
		}
		n.byName[d.ID.Name] = append(n.byName[d.ID.Name], d)
		if coined(d.ID.Name) {
			if n.owners[d.ID.Name] == nil {
				n.owners[d.ID.Name] = map[string]bool{}
			}
			n.owners[d.ID.Name][d.ID.Server] = true
		}
	}
	return n
}

// coined reports whether a name is no word of a language: send_email, sendEmail.
func coined(name string) bool {
	return len(name) >= 6 && (strings.ContainsAny(name, "_-") || strings.IndexFunc(name[1:], unicode.IsUpper) >= 0)
}

// warnings are those of a definition beside the others.
func (n neighbourhood) warnings(d Definition, text string) (found []Warning) {
	if d.ID.Kind == tool.KindTool {
		if of := n.twin(d); of != "" {
			found = append(found, Warning{Shadows, "it has the name of " + Visible(of) + " and says nearly the same"})
		}
	}
	for from := 0; from < len(text); {
		start := from + strings.IndexFunc(text[from:], inName)
		if start < from {
			break
		}
		end := start + strings.IndexFunc(text[start:], func(r rune) bool { return !inName(r) })
		if end < start {
			end = len(text)
		}
		from = end
		name := text[start:end]
		owners := n.owners[name]
		if len(owners) == 0 || owners[d.ID.Server] {
			continue
		}
		sentence := text[max(0, start-120):min(len(text), end+120)]
		if !steers.MatchString(sentence) {
			continue
		}
		for server := range owners {
			found = append(found, Warning{Shadows, "it tells how to use " + Visible(server+"."+name) + ": " + excerpt(text, start, end)})
			break
		}
		break
	}
	return found
}

func inName(r rune) bool {
	return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// twin is the ID of another server's tool of that name with nearly the same body.
func (n neighbourhood) twin(d Definition) string {
	same := n.byName[d.ID.Name]
	if len(same) < 2 {
		return ""
	}
	words, count := bodyOf(d.ID.Kind, d.Raw)
	if count < leastWords {
		return ""
	}
	for _, other := range same[:min(len(same), maxNeighbours)] {
		if other.ID.Server == d.ID.Server {
			continue
		}
		if of, m := bodyOf(other.ID.Kind, other.Raw); similarity(words, count, of, m) >= alike {
			return other.ID.String()
		}
	}
	return ""
}
