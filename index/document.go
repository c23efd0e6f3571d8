package index

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	api "github.com/blevesearch/bleve_index_api"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// The fields of an indexed document.
const (
	fieldID     = "_id"    // the library requires this field; its value is the same in all documents
	fieldTerms  = "terms"  // all text of the definition
	fieldNames  = "names"  // squeezed names, for exact matches
	fieldServer = "server" // the configured name of the upstream
	fieldKind   = "kind"   // kind; not of tools
	fieldGroup  = "group"  // in all documents of a group
)

const groupTerm = "group"

// The groups of documents. Each group has its own fields for terms and names, with the group in the field's name:
// the rarity of a word among tools, and so the scores of tools, do not depend on prompts and resources.
const (
	groupTools  = ""
	groupOthers = "+"
)

func groupOf(kind tool.Kind) string {
	if kind == tool.KindTool {
		return groupTools
	}
	return groupOthers
}

// textKind is one kind of text in a definition, with the weight of its words. A word that occurs n times in a text
// of length l counts
//
// weight * n / (1 - slope + slope*l/length)
//
// where length is the average number of terms of such texts in real tools. It is a constant, unlike the average of
// an index, so that the terms of a tool do not depend on its neighbours, and nothing is recounted when these
// change.
//
//	weight * n / (1 - slope + slope*l/length)
//
// where length is how many terms such a part has on average in real tools. It
// is a constant, unlike the average of an index, so that a tool's terms do not
// depend on its neighbours and nothing is counted again when those change.
type textKind struct{ weight, slope, length float64 }

// Tuned on the averages of annotated tool catalogues.
var (
	partName        = textKind{6, 1, 3.5}
	partTitle       = textKind{1, .75, 5}
	partServer      = textKind{1.5, 1, 6}
	partDescription = textKind{1, .6, 25}
	partAbout       = textKind{.5, .75, 20} // the server's description
	partParameter   = textKind{.8, .33, 12} // names of parameters
	partExplanation = textKind{.5, .33, 25} // descriptions of parameters
	partURI         = textKind{1.5, 1, 6}   // of a resource, with its media type; not tuned, weighted like a server's name
)

// scale is the frequency of the count 1: frequencies are stored as integers.
const scale = 16

// count is a term and its frequency in a document, in sixteenths.
type count struct {
	term  string
	times int
}

// counts returns the terms of d, each once, in any order.
func (a *analyzer) counts(d Document) []count {
	var said []int // terms of the document
	a.eachPart(d, func(_ string, id int, amount float64) {
		if a.total[id] == 0 {
			said = append(said, id)
		}
		a.total[id] += amount
	})
	out := make([]count, len(said))
	for i, id := range said {
		out[i] = count{a.terms[id], max(1, int(math.Round(a.total[id]*scale)))}
		a.total[id] = 0
	}
	return out
}

// eachPart calls add with the count of each term in each text of d.
func (a *analyzer) eachPart(d Document, add func(part string, term int, amount float64)) {
	count := func(name string, p textKind, texts ...string) {
		var length float64
		var here []int // terms of this text
		note := func(id int) {
			if a.times[id] == 0 {
				here = append(here, id)
			}
			a.times[id]++
		}
		for i := range texts {
			texts[i] = rawjson.Head(texts[i], maxText)
		}
		a.each(strings.Join(texts, "\n"), func(w word) {
			note(w.stem)
			note(w.written)
			length += 2
			if w.concept >= 0 {
				note(w.concept)
			}
		})
		for _, id := range here {
			add(name, id, p.weight*a.times[id]/(1-p.slope+p.slope*length/p.length))
			a.times[id] = 0
		}
	}
	names, explanations := documented(d.Def)
	if uri := uriWords(d.Def); uri == "" {
		count("name", partName, d.Def.ID.Name)
	} else {
		count("name", partName, ownName(d.Def))
		count("uri", partURI, uri, rawjson.Text(rawjson.Member(d.Def.Raw, "mimeType")))
	}
	count("title", partTitle, d.Def.Title)
	count("server", partServer, d.Def.ID.Server)
	count("description", partDescription, d.Def.Description)
	count("server description", partAbout, d.ServerDescription)
	count("parameters", partParameter, names...)
	count("parameter descriptions", partExplanation, explanations...)
}

// TextVersion changes with Text: vectors of old texts are useless.
const TextVersion = "1"

// maxDescription bounds, in bytes, the embedded part of a description. Local models read less.
const maxDescription = 4 << 10

// Text returns the text of a document that is embedded: its names as words, its description, the words of its URI,
// and the names of its parameters. On annotated tool sets this ranked better than without parameters, or with their
// descriptions.
func Text(d Document) string {
	var b strings.Builder
	name := ownName(d.Def)
	b.WriteString(spaced(d.Def.ID.Server))
	b.WriteByte(' ')
	b.WriteString(spaced(name))
	if title := d.Def.Title; title != "" && squeeze(title) != squeeze(name) {
		b.WriteString(" (" + rawjson.Head(title, maxWord) + ")")
	}
	b.WriteString(": ")
	b.WriteString(rawjson.Head(d.Def.Description, maxDescription))
	names, _ := documented(d.Def)
	if uri := uriWords(d.Def); uri != "" {
		names = append([]string{uri}, names...)
	}
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte(' ')
		b.WriteString(spaced(name))
	}
	return b.String()
}

// spaced writes an identifier as words: getURLs_v2 becomes get URLs v 2.
func spaced(name string) string {
	var parts [][]byte
	for _, word := range english.Tokenizer.Tokenize([]byte(rawjson.Head(name, 4*maxWord))) {
		parts = append(parts, split(word.Term)...)
	}
	return string(bytes.Join(parts, []byte(" ")))
}

// document is a Document in the form that the library indexes: with counted terms, and nothing stored.
type document struct{ fields []*field }

func (a *analyzer) document(d Document) *document {
	group := groupOf(d.Def.ID.Kind)
	fields := []*field{
		{name: fieldTerms + group, options: api.IndexField, counts: a.counts(d)},
		{name: fieldNames + group, options: api.IndexField, counts: squeezedNames(d)},
		{name: fieldServer, options: api.IndexField | api.SkipFreqNorm, counts: []count{{d.Def.ID.Server, 1}}},
		{name: fieldGroup + group, options: api.IndexField | api.SkipFreqNorm, counts: []count{{groupTerm, 1}}},
		{name: fieldID, options: api.IndexField | api.StoreField | api.SkipFreqNorm, counts: []count{{fieldID, 1}}},
	}
	if deprecated(d.Def) {
		fields = append(fields, &field{
			name: fieldDeprecated + group, options: api.IndexField | api.SkipFreqNorm, counts: []count{{deprecatedTerm, 1}},
		})
	}
	if verb := a.verbOf(d.Def); verb != "" {
		fields = append(fields, &field{
			name: fieldVerb + group, options: api.IndexField | api.SkipFreqNorm, counts: []count{{verb, 1}},
		})
	}
	if group != groupTools {
		fields = append(fields, &field{
			name: fieldKind, options: api.IndexField | api.SkipFreqNorm, counts: []count{{string(d.Def.ID.Kind), 1}},
		})
	}
	return &document{fields}
}

// squeezedNames returns the names of a document, each once, with their levels.
func squeezedNames(d Document) []count {
	names := []count{
		{squeeze(d.exposed()), exactID}, {squeeze(d.Def.ID.String()), exactID}, {squeeze(d.Def.ID.Name), exactName},
	}
	if own := ownName(d.Def); own != d.Def.ID.Name {
		names = append(names, count{squeeze(own), exactName})
	}
	slices.SortFunc(names, func(a, b count) int {
		return cmp.Or(cmp.Compare(a.term, b.term), cmp.Compare(b.times, a.times))
	})
	names = slices.CompactFunc(names, func(a, b count) bool { return a.term == b.term })
	return slices.DeleteFunc(names, func(c count) bool { return c.term == "" })
}

func (d *document) ID() string                               { return fieldID }
func (d *document) VisitComposite(api.CompositeFieldVisitor) {}
func (d *document) HasComposite() bool                       { return false }
func (d *document) Size() int                                { return 0 }
func (d *document) NumPlainTextBytes() uint64                { return 0 }
func (d *document) StoredFieldsBytes() uint64                { return 0 }
func (d *document) Indexed() bool                            { return true }
func (d *document) AddIDField()                              {}

func (d *document) VisitFields(visit api.FieldVisitor) {
	for _, f := range d.fields {
		visit(f)
	}
}

// field is a field of a document.
type field struct {
	name    string
	options api.FieldIndexingOptions
	counts  []count
}

// AnalyzedTokenFrequencies makes a new map for each call: cached maps of a whole batch would be larger than the
// finished index.
func (f *field) AnalyzedTokenFrequencies() api.TokenFrequencies {
	out := make(api.TokenFrequencies, len(f.counts))
	all := make([]api.TokenFreq, len(f.counts))
	for i, c := range f.counts {
		all[i].SetFrequency(c.times)
		out[c.term] = &all[i]
	}
	return out
}

func (f *field) Name() string                      { return f.name }
func (f *field) Options() api.FieldIndexingOptions { return f.options }
func (f *field) AnalyzedLength() int               { return 1 } // the counts include the length
func (f *field) Analyze()                          {}
func (f *field) ArrayPositions() []uint64          { return nil }
func (f *field) EncodedFieldType() byte            { return 't' }
func (f *field) NumPlainTextBytes() uint64         { return 0 }
func (f *field) Value() []byte                     { return nil }

// squeeze reduces a name to its letters and digits: search_code, "Search code" and searchCode become the same name.
func squeeze(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, string(fold([]byte(rawjson.Head(name, 4*maxWord))))))
}

// Levels of an exact match; the first two are frequencies in fieldNames. The names of two tools may differ only by
// case or separators: the exact spelling comes first.
const (
	exactName   = 1 // the upstream's own name of the tool, in some spelling
	exactID     = 2 // the exposed name, or "server.name", in some spelling
	spelledName = 3 // the upstream's own name
	spelledID   = 4 // the exposed name, or "server.name"
)

// Document is a searchable tool, prompt, resource or resource template. Neither it nor its Def changes after it was
// given to an Index.
type Document struct {
	Name              string // Key of its kind and exposed name, unique
	Def               *tool.Def
	ServerDescription string // purpose of the server
}

// Key returns the Name of the Document of a kind and exposed name: the name of a tool as it is; other names follow
// their kind and a colon, which no tool's name has.
func Key(kind tool.Kind, exposed string) string {
	if kind == tool.KindTool {
		return exposed
	}
	return string(kind) + ":" + exposed
}

// exposed returns the name, URI or URI template that clients see.
func (d Document) exposed() string {
	if d.Def.ID.Kind == tool.KindTool {
		return d.Name
	}
	return strings.TrimPrefix(d.Name, string(d.Def.ID.Kind)+":")
}
