package retrieve

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unique"

	"toolfinch/index"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// maxTags is how many tags a tool is shown with.
const maxTags = 10

// hint is a tag that stands for what a tool may do.
type hint struct {
	tag, key string // key: of the annotation
	holds    func(tool.Annotations) bool
}

var hints = []hint{
	{"read-only", "readOnlyHint", func(a tool.Annotations) bool { return a.ReadOnly }},
	{"destructive", "destructiveHint", func(a tool.Annotations) bool { return !a.ReadOnly && a.Destructive }},
	{"idempotent", "idempotentHint", func(a tool.Annotations) bool { return a.Idempotent }},
	{"open-world", "openWorldHint", func(a tool.Annotations) bool { return a.OpenWorld }},
}

// Tags returns the tags that a tool is shown with: its server, the hints that it sets
// (read-only, destructive, idempotent, open-world), and telling words of its name and
// of the first sentence of its description. They are in lower case, at most 10, and
// Catalog.Tagged finds each.
func Tags(t *tool.Tool) []string {
	def := t.Def
	tags := []string{strings.ToLower(def.ID.Server)}
	annotations := rawjson.Member(def.Raw, "annotations")
	for _, h := range hints {
		// Nearly every tool would have a tag for the default of a hint.
		if h.holds(def.Annotations) && string(rawjson.Member(annotations, h.key)) == "true" {
			tags = append(tags, h.tag)
		}
	}
	text := apart(def.ID.Name) + " " + FirstSentence(def.Description)
	telling := index.Terms(text)
	said := index.Terms(def.ID.Server)
	for word := range strings.FieldsFuncSeq(text, notInWord) {
		if len(tags) == maxTags {
			break
		}
		word = strings.ToLower(word)
		stems := index.Terms(word)
		if len(stems) == 0 || len(word) < 2 || strings.IndexFunc(word, unicode.IsLetter) < 0 || !subset(stems, telling) || subset(stems, said) || isHint(word) {
			continue
		}
		said = append(said, stems...)
		tags = append(tags, word)
	}
	return tags
}

// havingTags returns a predicate for tools with all tags; says tests a stem against the
// words of the tool and its server. One goroutine may use the predicate.
func havingTags(tags []string) func(t *tool.Tool, says func(stem unique.Handle[string]) bool) bool {
	type wanted struct {
		plain string
		hint  func(tool.Annotations) bool // nil for no hint
		stems []unique.Handle[string]
	}
	all := make([]wanted, len(tags))
	for i, tag := range tags {
		all[i] = wanted{plain: plainly(tag), stems: handles(index.Terms(tag))}
		for _, h := range hints {
			if plain := plainly(h.tag); all[i].plain == plain || all[i].plain == plain+"hint" {
				all[i].hint = h.holds
			}
		}
	}
	servers := map[string]string{}
	plain := func(server string) string {
		is, ok := servers[server]
		if !ok {
			is = plainly(server)
			servers[server] = is
		}
		return is
	}
	return func(t *tool.Tool, says func(stem unique.Handle[string]) bool) bool {
		for _, w := range all {
			switch {
			case w.plain != "" && w.plain == plain(t.Def.ID.Server):
			case w.hint != nil && t.Def.ID.Kind == tool.KindTool:
				// Decided by the hint alone: "read" stands in many a description.
				if !w.hint(t.Def.Annotations) {
					return false
				}
			case len(w.stems) == 0 || slices.ContainsFunc(w.stems, func(stem unique.Handle[string]) bool { return !says(stem) }):
				return false
			}
		}
		return true
	}
}

// termsOf returns the stems of the words of a tool, without its server's.
func termsOf(t *tool.Tool) []unique.Handle[string] {
	return handles(index.Terms(strings.Join([]string{t.Name, t.Def.ID.Name, t.Def.ID.Server, t.Def.Title, t.Def.Full().Description}, "\n")))
}

func handles(terms []string) []unique.Handle[string] {
	out := make([]unique.Handle[string], len(terms))
	for i, term := range terms {
		out[i] = unique.Make(term)
	}
	return out
}

func subset(of, all []string) bool {
	for _, x := range of {
		if !slices.Contains(all, x) {
			return false
		}
	}
	return true
}

func isHint(word string) bool {
	return slices.ContainsFunc(hints, func(h hint) bool { return plainly(h.tag) == plainly(word) })
}

// plainly returns a name in lower case without separators: read-only, read_only and
// readOnly become the same.
func plainly(name string) string {
	return strings.Map(func(r rune) rune {
		if notInWord(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

func notInWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// apart separates the words of an identifier: createIssue becomes create Issue.
func apart(name string) string {
	var b strings.Builder
	before := ' '
	for _, r := range name {
		if unicode.IsLower(before) && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

// words remembers stems and tags by content: stemming a definition takes some hundred
// times as long as comparing its stems.
type words struct {
	mu    sync.Mutex // guards what follows; not held while stemming
	terms map[worded][]unique.Handle[string]
	tags  map[worded][]string
}

// worded identifies a text, or a tool as clients see it.
type worded struct{ text, server, name string }

func wordedAs(t *tool.Tool) worded { return worded{t.Def.Full().Hash, t.Def.ID.Server, t.Name} }

// remembered returns the known value of a key, or makes it.
func remembered[T any](w *words, known *map[worded]T, key worded, make func() T) T {
	w.mu.Lock()
	value, ok := (*known)[key]
	w.mu.Unlock()
	if ok {
		return value
	}
	value = make()
	w.mu.Lock()
	defer w.mu.Unlock()
	if *known == nil {
		*known = map[worded]T{}
	}
	(*known)[key] = value
	return value
}

// tagsOf is Tags, remembered.
func (w *words) tagsOf(t *tool.Tool) []string {
	return remembered(w, &w.tags, wordedAs(t), func() []string { return Tags(t) })
}

// forget forgets everything once it has more than most texts: some are of tools that
// are gone.
func (w *words) forget(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.terms) > most || len(w.tags) > most {
		w.terms, w.tags = nil, nil
	}
}
