package retrieve

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// producer is a tool whose result has what a parameter of another tool of its server takes: list_projects for the
// project_id of delete_project.
type producer struct {
	id        tool.ID
	parameter string
	evidence  float64
}

// related finds the producers among the tools of a server, at the first search that found one of them. Two searches may
// do it at once, so that none waits.
type related struct {
	tools []*tool.Tool
	found atomic.Pointer[map[tool.ID][]producer]
}

// Evidence that a tool is a producer. Less is subtracted for what the producer itself requires.
const (
	namedByParameter = 5.0  // the description of the parameter names it: "from list_accounts"
	namedByTool      = 4.0  // the description of the tool does: "call list_accounts first"
	inOutputSchema   = 3.0  // a property of its result has the name
	listsNoun        = 2.0  // list_projects, search_projects for project_id
	returnsNoun      = 1.5  // it says that it returns this
	createsNoun      = 1.0  // create_presentation for presentation_id
	perParameter     = 0.05 // for what must be produced for the producer
	perWord          = 0.2  // for a noun of another length
	nearly           = 0.18 // producers of nearly the same evidence are alternatives
)

// Bounds of what a server's tools cost.
const (
	maxAlternatives = 3       // producers of one parameter
	maxMentions     = 8       // names in one description
	maxOutput       = 4       // nesting of an output schema
	maxKin          = 2000    // tools of a server; those beyond produce nothing and need nothing
	maxSiblings     = 32      // tools under one word; each is compared with each parameter of that word
	maxNeeds        = 16      // parameters of a tool that take what others have
	maxRead         = 4 << 10 // bytes of a description
)

// producersAmong returns the producers among the tools of a server, for each tool that needs one.
func producersAmong(defs []*tool.Def) map[tool.ID][]producer {
	k := newKin(defs[:min(len(defs), maxKin)])
	out := map[tool.ID][]producer{}
	for _, m := range k.all {
		if found := k.producersOf(m); len(found) > 0 {
			out[m.def.ID] = found
		}
	}
	return out
}

// kin are the tools of one server.
type kin struct {
	all      []*sibling
	byName   map[string]*sibling   // by plain name
	byNoun   map[string][]*sibling // what they list or create, by its last word
	byField  map[string][]*sibling // properties of their results, by plain name
	byReturn map[string][]*sibling // words of what they say they return
	locators []*sibling            // tools that turn an address into coordinates
	begins   map[string]int        // how many names begin with a word
	nouns    map[string]bool       // of all names, joined
}

// sibling is one of them, as its name and schema describe it.
type sibling struct {
	def    *tool.Def
	words  []string // of its name, in the singular
	verb   string
	ahead  []string // the words before a verb that is not the last
	noun   []string // what the verb is about, in the singular
	plural bool     // the noun was

	returned string // the sentences that say what it returns, as words
	needs    []parameter
}

// parameter takes what another tool's result has.
type parameter struct {
	name, about string
	noun        []string // of what it is the identifier
	ident       bool     // an identifier, by its name
	place       bool     // a coordinate
	optional    bool
}

var (
	lists    = wordSet("list search find browse discover lookup searcher")
	gets     = wordSet("get fetch retrieve show query resolve")
	creates  = wordSet("create open start launch new init")
	begins   = wordSet("open start launch init") // a session
	writes   = wordSet("put set write upload add push save")
	destroys = wordSet("delete remove drop purge destroy clear reset cancel revoke kill terminate wipe truncate archive end close")
	verbs    = wordSet("update edit move copy rename send post run execute apply enable disable check validate load " +
		"generate convert describe explain read export import merge assign attach detach modify patch scale restart stop watch")
	idents = wordSet("id key slug uuid uid guid iid code ref number identifier arn urn sha handle")
	vague  = wordSet("code ref number") // alone they say nothing
	// prepositions end what a tool is about: list_issues_by_project lists issues.
	prepositions = wordSet("by for of in from with to on at and per within via using as")
	fillers      = wordSet("all my the a an available many multiple current recent default")
	// roles say which one of the same kind: source_project_id is of a project.
	roles       = wordSet("source target destination parent child from to base head old new other src dst dest origin root default start end first second")
	coordinates = wordSet("latitude longitude lat lng lon")
	// everyday nouns are values, even if some tool lists them.
	everyday = wordSet("date time query text content message name title comment data value type status image color option field result event file note user description reason")

	identifier = regexp.MustCompile(`[A-Za-z0-9]+(?:[_.-][A-Za-z0-9]+)*`)
	// callIt and calledFirst surround the name of a tool that is to be called before this one.
	callIt      = regexp.MustCompile(`(?i)\b(from|via|by|call|use|using|run|after|calling|invoke|with)\W{1,3}(the \W?)?$`)
	calledFirst = regexp.MustCompile(`(?i)^\W{0,4}(tool |command |function )?(first|to (get|find|obtain|look up|discover|retrieve|list|resolve|search for)|before|beforehand|for (available|valid))\b`)
	givenBy     = regexp.MustCompile(`(?i)\b(obtain|obtained|returned|retrieved|available|found|provided|listed|taken|received|got|comes?|get it|output|results?)\b[^.;]{0,30}$`)
	unlike      = regexp.MustCompile(`(?i)\b(instead|rather|unlike|alternative|prefer|similar to|see also|then)\b`)
	// returns is a sentence that says what comes back.
	returns = regexp.MustCompile(`(?i)\breturn(s|ing)?\b[^.\n]*`)
)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// wordsOf returns the words of an identifier in lower case.
func wordsOf(name string) []string {
	return strings.FieldsFunc(strings.ToLower(apart(name)), notInWord)
}

// singular returns a noun in the singular, by its ending.
func singular(word string) string {
	switch {
	case len(word) < 4 || strings.HasSuffix(word, "ss") || strings.HasSuffix(word, "us") || strings.HasSuffix(word, "is"):
		return word
	case strings.HasSuffix(word, "ies"):
		return word[:len(word)-3] + "y"
	case strings.HasSuffix(word, "sses") || strings.HasSuffix(word, "xes") || strings.HasSuffix(word, "ches") || strings.HasSuffix(word, "shes"):
		return word[:len(word)-2]
	}
	return strings.TrimSuffix(word, "s")
}

func newKin(defs []*tool.Def) *kin {
	k := &kin{byName: map[string]*sibling{}, byNoun: map[string][]*sibling{}, byField: map[string][]*sibling{},
		byReturn: map[string][]*sibling{}, begins: map[string]int{}, nouns: map[string]bool{}}
	for _, def := range defs {
		if words := wordsOf(def.ID.Name); len(words) > 0 {
			k.begins[words[0]]++
		}
	}
	for _, def := range defs {
		m := &sibling{def: def}
		words := wordsOf(def.ID.Name)
		// A word that begins most names is the server's: browser_click.
		if len(words) > 1 && !lists[words[0]] && !gets[words[0]] &&
			(2*k.begins[words[0]] > len(defs) && len(defs) > 2 || slices.Contains(wordsOf(def.ID.Server), words[0])) {
			words = words[1:]
		}
		m.read(words)
		k.all = append(k.all, m)
		k.byName[plainOf(def.ID.Name)] = m
		k.nouns[strings.Join(m.noun, " ")] = true
	}
	for _, m := range k.all {
		m.needs = k.parameters(m)
		if !m.destroys() {
			k.gives(m)
		}
	}
	return k
}

// gives enters a tool under what its result may have.
func (k *kin) gives(m *sibling) {
	add := func(to map[string][]*sibling, key string) {
		if at := to[key]; len(at) < maxSiblings && (len(at) == 0 || at[len(at)-1] != m) {
			to[key] = append(at, m)
		}
	}
	if len(m.noun) > 0 && !m.converts() && (lists[m.verb] || gets[m.verb] && m.plural || creates[m.verb]) {
		add(k.byNoun, m.noun[len(m.noun)-1])
	}
	if m.locates() && len(k.locators) < maxSiblings {
		k.locators = append(k.locators, m)
	}
	eachField(m.def.OutputSchema, maxOutput, func(name string) { add(k.byField, plainOf(name)) })
	for _, sentence := range returns.FindAllString(rawjson.Head(m.def.Full().Description, maxRead), maxMentions) {
		words := slices.DeleteFunc(singulars(sentence), func(w string) bool { return prepositions[w] || fillers[w] })
		m.returned += " " + strings.Join(words, " ") + " "
		for _, w := range words {
			add(k.byReturn, w)
		}
	}
}

// singulars returns the words of a text in the singular.
func singulars(text string) []string {
	words := wordsOf(text)
	for i, w := range words {
		words[i] = singular(w)
	}
	return words
}

// plainOf returns a name without case and separators.
func plainOf(name string) string { return strings.Join(wordsOf(name), "") }

// read finds verb and noun in the words of a name.
func (m *sibling) read(words []string) {
	m.words = singulars(strings.Join(words, " "))
	at := slices.IndexFunc(words, func(w string) bool {
		return lists[w] || gets[w] || creates[w] || writes[w] || destroys[w] || verbs[w]
	})
	noun := words
	switch {
	case at < 0:
	case at == len(words)-1: // issues_list
		m.verb, noun = words[at], words[:at]
	default:
		m.verb, m.ahead, noun = words[at], m.words[:at], words[at+1:]
	}
	if end := slices.IndexFunc(noun, func(w string) bool { return prepositions[w] }); end >= 0 {
		noun = noun[:end]
	}
	for _, w := range noun {
		if !fillers[w] {
			m.noun = append(m.noun, singular(w))
			m.plural = singular(w) != w && at < len(words)-1
		}
	}
}

// destroys reports whether a tool takes something away, by its name.
func (m *sibling) destroys() bool {
	return slices.ContainsFunc(m.words, func(w string) bool { return destroys[w] })
}

// locates reports whether a tool finds the coordinates of an address.
func (m *sibling) locates() bool {
	name := strings.Join(m.words, " ")
	return strings.Contains(name, "geocod") && !m.converts()
}

// converts reports whether a tool goes the other way: from coordinates to an address.
func (m *sibling) converts() bool { return slices.Contains(m.words, "reverse") }

// parameters returns the parameters of a tool that may take what another tool's result has.
func (k *kin) parameters(m *sibling) (all []parameter) {
	required := texts(rawjson.Member(m.def.InputSchema, "required"))
	for name, schema := range rawjson.Members(rawjson.Member(m.def.InputSchema, "properties")) {
		if chosen(schema) {
			continue
		}
		p := parameter{name: name, about: rawjson.Text(rawjson.Member(schema, "description")), optional: !slices.Contains(required, name)}
		words := singulars(name)
		if len(words) == 0 {
			continue
		}
		front, last := words[:len(words)-1], words[len(words)-1]
		p.place = slices.ContainsFunc(words, func(w string) bool { return coordinates[w] })
		p.ident = idents[last]
		switch {
		case p.place || last == "path" || last == "title" || len(words) == 1 && vague[last]:
		case idents[last] && len(front) == 0:
			if p.noun = m.noun; len(m.ahead) > 0 && k.nouns[strings.Join(m.ahead, " ")] { // firewall-remove-droplets takes the firewall's
				p.noun = m.ahead
			}
		case idents[last] || last == "name":
			p.noun = front
		default:
			p.noun = words
		}
		// Whoever makes or names something chooses its identifier.
		if n := len(p.noun); n > 0 && slices.Contains(m.noun, p.noun[n-1]) &&
			(creates[m.verb] && (n == 1 || !roles[words[0]]) || writes[m.verb] && (len(front) == 0 || last == "name") ||
				last == "name" && (words[0] == "new" || words[0] == "destination" || words[0] == "target")) {
			p.noun, p.ident = nil, false
		}
		if p.optional && (!p.ident || len(front) == 0 || len(p.noun) == 0) {
			continue
		}
		if all = append(all, p); len(all) == maxNeeds {
			break
		}
	}
	return all
}

// chosen reports whether a parameter takes one of a few values, or what no tool's result has.
func chosen(schema json.RawMessage) bool {
	value := rawjson.Member(schema, "default")
	if rawjson.Member(schema, "enum") != nil || rawjson.Member(schema, "const") != nil || value != nil && string(value) != "null" {
		return true
	}
	kind := texts(rawjson.Member(schema, "type"))
	return slices.Contains(kind, "boolean") || slices.Contains(kind, "object")
}

// eachField calls do with the names of the properties of a schema.
func eachField(schema json.RawMessage, depth int, do func(name string)) {
	if schema == nil || depth == 0 {
		return
	}
	for name, of := range rawjson.Members(rawjson.Member(schema, "properties")) {
		do(name)
		eachField(of, depth-1, do)
	}
	eachField(rawjson.Member(schema, "items"), depth-1, do)
}

// producersOf returns the producers for a tool, by parameter.
func (k *kin) producersOf(m *sibling) (all []producer) {
	byTool := k.mentioned(m.def.Full().Description, m, true)
	for _, p := range m.needs {
		var found []producer
		add := func(of *sibling, evidence float64) {
			if of == m || of.destroys() || of.takes(p) || slices.ContainsFunc(found, func(f producer) bool { return f.id == of.def.ID }) {
				return
			}
			found = append(found, producer{of.def.ID, p.name, evidence - perParameter*float64(min(of.identifiers(), 9))})
		}
		if p.optional {
			k.opened(m, p, add)
		} else {
			for _, of := range k.mentioned(p.about, m, false) {
				add(of, namedByParameter)
			}
			for _, of := range byTool {
				if (p.ident || p.place) && (of.about(p) || m.required() == 1 && len(byTool) == 1) {
					add(of, namedByTool)
				}
			}
			k.ofSchema(p, add)
			k.ofNoun(m, p, add)
		}
		slices.SortStableFunc(found, func(a, b producer) int { return cmp.Compare(b.evidence, a.evidence) })
		for i, f := range found[:min(len(found), maxAlternatives)] {
			if i == 0 || f.evidence > found[0].evidence-nearly {
				all = append(all, f)
			}
		}
	}
	return all
}

// required counts the parameters that a tool cannot do without.
func (m *sibling) required() (n int) {
	for _, p := range m.needs {
		if !p.optional {
			n++
		}
	}
	return n
}

// identifiers counts those that another tool may have to produce.
func (m *sibling) identifiers() (n int) {
	for _, p := range m.needs {
		if !p.optional && (p.ident || p.place) {
			n++
		}
	}
	return n
}

// ofSchema adds the tools whose output schema has a parameter, and those that say they return it.
func (k *kin) ofSchema(p parameter, add func(*sibling, float64)) {
	words := wordsOf(p.name)
	if len(words) < 2 {
		return
	}
	if p.ident && len(p.noun) > 0 {
		for _, of := range k.byField[plainOf(p.name)] {
			add(of, inOutputSchema)
		}
	}
	words = slices.DeleteFunc(singulars(p.name), func(w string) bool { return len(w) < 2 || prepositions[w] })
	if len(words) < 2 || !p.ident && words[0] != "path" {
		return
	}
	for _, of := range k.byReturn[words[0]] {
		if strings.Contains(of.returned, " "+strings.Join(words, " ")+" ") {
			add(of, returnsNoun)
		}
	}
}

// ofNoun adds the tools that list or create what a parameter identifies.
func (k *kin) ofNoun(m *sibling, p parameter, add func(*sibling, float64)) {
	if p.place && !m.converts() {
		for _, of := range k.locators {
			add(of, listsNoun)
		}
	}
	if len(p.noun) == 0 {
		return
	}
	for _, of := range k.byNoun[p.noun[len(p.noun)-1]] {
		fit, ok := k.fits(of, m, p)
		switch {
		case !ok:
		case creates[of.verb]:
			if p.ident && (begins[of.verb] || slices.Contains(of.noun, "session")) {
				add(of, createsNoun+fit)
			}
		case p.ident && (fit >= 0 || lists[of.verb] || len(of.ahead) == 0) || lists[of.verb] && (fit >= 0 || wordsOf(p.name)[len(p.noun):] != nil):
			add(of, listsNoun+fit)
		}
	}
}

// opened adds the tools that begin what an optional parameter identifies, if the other tool works on it: the presentation
// of add_slide, which is the open one by default.
func (k *kin) opened(m *sibling, p parameter, add func(*sibling, float64)) {
	last := p.noun[len(p.noun)-1]
	if creates[m.verb] || lists[m.verb] || !slices.Contains(wordsOf(m.def.ID.Name+" "+FirstSentence(m.def.Description)), last) {
		return
	}
	for _, of := range k.byNoun[last] {
		if creates[of.verb] && of.required() == 0 && slices.Equal(of.noun, p.noun) {
			add(of, createsNoun)
		}
	}
}

// fits reports whether a tool is about what a parameter of m identifies, and returns how well: 0 for the same words, less
// for others.
func (k *kin) fits(of, m *sibling, p parameter) (fit float64, ok bool) {
	if !k.sameGroup(of, m, p) {
		return 0, false
	}
	n, o := len(p.noun), len(of.noun)
	if short := min(n, o); !slices.Equal(p.noun[n-short:], of.noun[o-short:]) || n+o-2*short > 1 {
		return 0, false
	}
	switch {
	case n == o:
		return 0, n > 1 || p.ident || !everyday[p.noun[0]]
	case n > o: // source_project_id, resource_group
		phrase := strings.Join(p.noun, " ")
		said := strings.Contains(strings.Join(singulars(FirstSentence(of.def.Description)), " "), phrase)
		return -perWord, roles[p.noun[0]] || said
	}
	switch extra := of.noun[0]; {
	case !p.ident && everyday[p.noun[0]]:
		return 0, false
	case slices.Contains(m.words, extra): // list_group_milestones for edit_group_milestone
		return perWord, true
	case extra == of.words[0], !p.ident && !slices.Equal(m.noun, p.noun):
		return 0, false
	case k.nouns[strings.Join(p.noun, " ")] && !slices.Equal(m.noun, p.noun):
		return 0, false
	}
	return -perWord, slices.Equal(m.noun, p.noun) || !k.nouns[of.noun[0]]
}

// sameGroup reports whether two tools may be of the same part of a server. Large servers begin names with it:
// r2_list_buckets, kv_get. What begins with its noun is for all: zones_list.
func (k *kin) sameGroup(of, m *sibling, p parameter) bool {
	group := func(s *sibling) string {
		first := s.words[0]
		if first == s.verb || slices.Contains(p.noun, first) || s == of && len(s.noun) > 0 && first == s.noun[0] && len(s.noun) == len(p.noun) {
			return ""
		}
		if k.begins[first] < 2 && k.begins[first+"s"] < 2 {
			return ""
		}
		return first
	}
	a, b := group(of), group(m)
	return a == "" || a == b
}

// about reports whether a tool has to do with what a parameter identifies.
func (m *sibling) about(p parameter) bool {
	return slices.ContainsFunc(p.noun, func(w string) bool { return slices.Contains(m.words, w) })
}

// takes reports whether a tool requires the same as a parameter of another.
func (m *sibling) takes(p parameter) bool {
	return slices.ContainsFunc(m.needs, func(own parameter) bool {
		return !own.optional && (own.name == p.name || p.place && own.place || len(p.noun) > 0 && slices.Equal(own.noun, p.noun))
	})
}

// mentioned returns the other tools that a description names. The description of a tool must also say that they come
// first.
func (k *kin) mentioned(text string, m *sibling, mustSay bool) (all []*sibling) {
	text = rawjson.Head(text, maxRead)
	for _, at := range identifier.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		of := k.byName[plainOf(name)]
		if of == nil || of == m || slices.Contains(all, of) {
			continue
		}
		ahead, behind := text[max(0, at[0]-60):at[0]], text[at[1]:min(len(text), at[1]+40)]
		quoted := ahead != "" && behind != "" && strings.ContainsAny(ahead[len(ahead)-1:], "`'\"") && strings.ContainsAny(behind[:1], "`'\"(")
		if !strings.ContainsAny(name, "_-") && apart(name) == name && !quoted { // a word of speech
			continue
		}
		ahead = ahead[strings.LastIndexAny(ahead, ".;\n")+1:]
		if i := strings.IndexAny(behind, ".;\n"); i >= 0 {
			behind = behind[:i]
		}
		if unlike.MatchString(ahead) || strings.Contains(behind, "instead") ||
			mustSay && !givenBy.MatchString(ahead) && !(callIt.MatchString(ahead) && calledFirst.MatchString(behind)) {
			continue
		}
		if all = append(all, of); len(all) == maxMentions {
			break
		}
	}
	return all
}
