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

// maxTags bounds the tags that a tool is shown with.
const maxTags = 10

// hint is a tag for an annotation of a tool.
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

// Tags returns the tags that a tool is shown with: its server, the hints that it sets (read-only, destructive,
// idempotent, open-world), and telling words of its name and first sentence. They are in lower case, at most 10,
// and Catalog.Tagged finds each.
func Tags(t *tool.Tool) []string {
	def := t.Def
	tags := []string{strings.ToLower(def.ID.Server)}
	annotations := rawjson.Member(def.Raw, "annotations")
	for _, h := range hints {
		// The default of a hint is no tag: nearly every tool would have it.
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
				// The hint alone decides: many descriptions contain "read".
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

// termsOf returns the stems of a tool's words, without its server's description.
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
	return !slices.ContainsFunc(of, func(x string) bool { return !slices.Contains(all, x) })
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

// words caches stems and tags by content: stemming a definition takes some hundred times as long as comparing its
// stems.
type words struct {
	mu    sync.Mutex // guards the fields below; not held while stemming
	terms map[wordedKey][]unique.Handle[string]
	tags  map[wordedKey][]string
}

// wordedKey identifies a text, or a tool as clients see it.
type wordedKey struct{ text, server, name string }

func keyOf(t *tool.Tool) wordedKey { return wordedKey{t.Def.Full().Hash, t.Def.ID.Server, t.Name} }

// remembered returns the cached value of a key, or makes it.
func remembered[T any](w *words, known *map[wordedKey]T, key wordedKey, make func() T) T {
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
		*known = map[wordedKey]T{}
	}
	(*known)[key] = value
	return value
}

// tagsOf is Tags, cached.
func (w *words) tagsOf(t *tool.Tool) []string {
	return remembered(w, &w.tags, keyOf(t), func() []string { return Tags(t) })
}

// forget empties the cache once it has more than most texts: some belong to tools that are gone.
func (w *words) forget(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.terms) > most || len(w.tags) > most {
		w.terms, w.tags = nil, nil
	}
}
