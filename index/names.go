package index

import (
	"slices"
	"strings"
)

// resembling finds names that contain the query: a half-typed word, or a word that occurs only in compounds.
func (r *ranking) resembling(name string) {
	if len(name) < 2 || stopWords[name] {
		return
	}
	for i, p := range r.x.pieces {
		p.names().containing(name, func(number, length int) {
			if e := p.docs[number]; e != nil && slices.Contains(r.groups, groupOf(e.Def.ID.Kind)) {
				r.scores[r.x.from[i]+number] += resemblance * float64(len(name)) / float64(length)
			}
		})
	}
}

// exact ranks the documents that the query names above all others, the best of each name first.
func (r *ranking) exact(text string) error {
	r.levels = make(map[int]int)
	for _, name := range namesIn(text) {
		if err := r.mentioned(name); err != nil {
			return err
		}
	}
	if len(r.levels) == 0 {
		return nil
	}
	top := r.top()
	r.lifts = make(map[int]float64, len(r.levels))
	for doc, level := range r.levels {
		r.sharpen(doc)
		r.lifts[doc] = float64(level)*(1+top) + max(0, -r.scores[doc])
		r.scores[doc] += r.lifts[doc]
	}
	return nil
}

// mentioned notes the documents with a name, and which is the best of them.
func (r *ranking) mentioned(name mention) error {
	found := false
	for _, text := range name.spellings {
		best, bestLevel := -1, 0
		err := r.x.postings(r.grouped(fieldNames), squeeze(text), func(doc, level int) {
			if !r.allowed.allows(doc) {
				return
			}
			level = r.x.spelled(doc, level, text)
			switch {
			case level < spelledName && name.exactly:
				return
			case level < spelledName && strings.Contains(text, " ") && r.isOld(doc):
				return // "read file" need not mean the deprecated read_file; readFile does
			}
			found = true
			level *= 2
			r.levels[doc] = max(r.levels[doc], level)
			if best < 0 || level > bestLevel || level == bestLevel && r.scores[doc] > r.scores[best] {
				best, bestLevel = doc, level
			}
		})
		if err != nil {
			return err
		}
		if found {
			r.levels[best] = max(r.levels[best], bestLevel+1)
			return nil
		}
	}
	return nil
}

// mention is what may be a name in a query.
type mention struct {
	spellings []string // with and without the prefixes of clients; the first that is a name counts
	exactly   bool     // only as spelled: it may be a word
}

// maxMentions bounds the names in a query.
const maxMentions = 16

// namesIn returns the whole query, and its words that look like identifiers.
func namesIn(text string) []mention {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	fields := strings.Fields(text)
	var all []mention
	if len(fields) > 1 {
		all = append(all, mention{spellings: []string{text}})
	}
	for _, field := range fields {
		field = strings.TrimFunc(field, func(r rune) bool { return !isWordRune(r) && r != '_' })
		if len(all) > maxMentions {
			break
		}
		identifier := strings.ContainsAny(field, "_:./")
		if len(fields) > 1 && !identifier && !strings.Contains(field, "-") && len(split([]byte(field))) < 2 || field == "" {
			continue
		}
		if kind, _ := address(field); kind != "" && len(fields) > 1 {
			continue
		}
		all = append(all, mention{withoutPrefixes(field), len(fields) > 1 && !identifier})
	}
	return all
}

// withoutPrefixes returns a name, and what remains of it without the prefixes that clients add: mcp__github__get_issue,
// functions.get_issue, github/get_issue, mcp_github_get_issue.
func withoutPrefixes(name string) []string {
	all := []string{name}
	rest := strings.TrimPrefix(name, "mcp_")
	for {
		if rest = strings.TrimLeft(rest, "_"); rest != name && rest != "" {
			all = append(all, rest)
		}
		at := strings.IndexAny(rest, "./:")
		if under := strings.Index(rest, "__"); under >= 0 && (at < 0 || under < at) {
			at = under
		}
		if at < 0 {
			return all
		}
		rest = rest[at+1:]
	}
}

// spelled returns the level of a document one of whose names is text in some spelling.
func (x *Snapshot) spelled(doc, level int, text string) int {
	switch d := x.at(doc).Document; text {
	case d.exposed(), d.Def.ID.String():
		return spelledID
	case d.Def.ID.Name:
		return max(level, spelledName)
	}
	return level
}
