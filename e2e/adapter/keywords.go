package main

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Agents search with keywords: "github: open issue, add label". keywordQueries
// makes such queries from what the tools say of themselves, one a tool, in one
// of eight forms, with other verbs and with words left out, so that they are
// not copies. Equal seeds make equal queries.
func keywordQueries(defs []*tool.Def, seed uint64) []example {
	c := newCatalogue(defs)
	var all []example
	for i, def := range defs {
		id := fnv.New64a()
		_, _ = id.Write([]byte(def.ID.Server + ":" + def.ID.Name))
		m := &maker{c, rand.New(rand.NewPCG(seed, id.Sum64()))}
		if e := m.query(i); len(strings.Fields(e.Text)) >= 2 {
			all = append(all, e)
		}
	}
	return all
}

// catalogue is the words of a set of tools.
type catalogue struct {
	names, servers, texts [][]string // by tool
	parameters            [][]string
	siblings              map[string][]int // by server
	server                []string
	documents             map[string]int // by word: how many tools have it
}

func newCatalogue(defs []*tool.Def) *catalogue {
	c := &catalogue{siblings: map[string][]int{}, documents: map[string]int{}}
	for i, def := range defs {
		c.names = append(c.names, words(def.ID.Name))
		c.servers = append(c.servers, without(words(def.ID.Server), noise))
		c.texts = append(c.texts, words(firstSentence(def.Description)))
		c.parameters = append(c.parameters, parametersOf(def))
		c.server = append(c.server, def.ID.Server)
		c.siblings[def.ID.Server] = append(c.siblings[def.ID.Server], i)
		for _, word := range unique(slices.Concat(c.names[i], c.texts[i])) {
			c.documents[word]++
		}
	}
	return c
}

// parametersOf are the words of the names of a tool's parameters.
func parametersOf(def *tool.Def) (all []string) {
	for name := range rawjson.Members(rawjson.Member(def.InputSchema, "properties")) {
		all = append(all, strings.Join(words(name), " "))
	}
	return all
}

var (
	wordOrPart = regexp.MustCompile(`\p{Lu}+(?:\p{Ll}\p{M}*)*|(?:\p{Ll}\p{M}*)+|\p{Lo}+|\d+`)
	sentence   = regexp.MustCompile(`[.!?。](\s|$)|\n`)
)

func words(text string) []string {
	all := wordOrPart.FindAllString(text, -1)
	for i, word := range all {
		all[i] = strings.ToLower(word)
	}
	return all
}

func firstSentence(text string) string {
	text = strings.TrimSpace(text)
	if end := sentence.FindStringIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

func set(text string) map[string]bool {
	all := map[string]bool{}
	for _, word := range strings.Fields(text) {
		all[word] = true
	}
	return all
}

var (
	noise = set("mcp server api tools tool official com io github org inc service mz")
	stops = set("a an the of to for and or in on at by with from as is are be this that these those it its you your can will which using use used via into " +
		"all any given specific specified based s t if when not has have their returns return tool allows provides")
)

// alike are verbs that mean about the same.
var alike = []string{
	"get fetch retrieve show read look_up view", "list show enumerate get_all browse", "create add make new set_up open", "delete remove erase drop clear",
	"update edit change modify set", "search find look_for query lookup", "send post deliver submit", "run execute start launch", "convert transform translate turn",
	"analyze analyse inspect examine check", "generate create produce make build", "download fetch save", "upload add put send", "calculate compute work_out",
	"check verify validate test", "close end finish resolve", "copy duplicate clone", "move transfer relocate", "summarize sum_up condense",
}

var verbs = func() map[string][]string {
	all := map[string][]string{}
	for _, line := range alike {
		group := strings.Fields(strings.ReplaceAll(line, "_", "-"))
		for _, verb := range group {
			all[verb] = append(all[verb], group...)
		}
	}
	return all
}()

func without(all []string, left map[string]bool) (out []string) {
	for _, word := range all {
		if !left[word] {
			out = append(out, word)
		}
	}
	return out
}

func unique(all []string) (out []string) {
	for _, word := range all {
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

// maker makes the query of one tool.
type maker struct {
	*catalogue
	random *rand.Rand
}

func (m *maker) query(i int) example {
	relevant := []int{i}
	server, name := m.servers[i], m.reworded(m.names[i])
	if slices.Equal(m.names[i], words(m.server[i])) { // its name is its server's: the text has to say what it does
		name = m.reworded(m.rarest(i, 4))
	}
	var parts []string
	add := func(some ...[]string) {
		if text := strings.Join(m.thinned(slices.Concat(some...)), " "); text != "" {
			parts = append(parts, text)
		}
	}
	headed := m.random.IntN(2) == 0
	switch m.random.IntN(8) {
	case 0: // open issue
		headed = true
		add(name)
	case 1:
		add(name, m.some(m.parameters[i], 2))
	case 2:
		add(m.rarest(i, 3+m.random.IntN(4)))
	case 3:
		add(name[:min(1, len(name))], m.rarest(i, 2+m.random.IntN(3)))
	case 4: // what the description says, as a command
		add(m.reworded(m.texts[i][:min(len(m.texts[i]), 6+m.random.IntN(7))]))
	case 5: // a subject, and what is to be done with it
		add(m.rarest(i, 1), name)
		add(m.rarest(i, 3))
	case 6: // two tools of one server
		add(name)
		if other := m.sibling(i); other >= 0 {
			add(m.reworded(m.names[other]))
			relevant = append(relevant, other)
		}
	case 7:
		add(name)
		add(m.rarest(i, 3))
		add(m.some(m.parameters[i], 2))
	}
	text := strings.Join(parts, ", ")
	if headed && len(server) > 0 {
		head := strings.Join(server, " ")
		if m.random.IntN(3) == 0 {
			head += " or " + strings.Join(m.rarest(i, 2), " ")
		}
		text = head + []string{": ", " "}[m.random.IntN(2)] + text
	}
	return example{Text: text, Relevant: relevant}
}

// rarest are n words of the name and the text that few tools have, in the order
// of the text.
func (m *maker) rarest(i, n int) []string {
	all := unique(without(slices.Concat(m.texts[i], m.names[i]), stops))
	weights := map[string]float64{}
	for _, word := range all {
		weights[word] = math.Log(float64(len(m.names))/float64(m.documents[word])) + m.random.Float64()
	}
	chosen := slices.Clone(all)
	slices.SortStableFunc(chosen, func(a, b string) int { return cmp.Compare(weights[b], weights[a]) })
	chosen = chosen[:min(n, len(chosen))]
	return slices.DeleteFunc(all, func(word string) bool { return !slices.Contains(chosen, word) })
}

// reworded has another verb in the place of the first that is known, more often
// than not.
func (m *maker) reworded(all []string) []string {
	all = slices.Clone(all)
	for j, word := range all {
		group := verbs[strings.TrimSuffix(word, "s")]
		if group == nil {
			continue
		}
		if m.random.IntN(3) > 0 {
			all[j] = strings.ReplaceAll(group[m.random.IntN(len(group))], "-", " ")
		}
		break
	}
	return all
}

// thinned is without one word in seven.
func (m *maker) thinned(all []string) (out []string) {
	all = unique(all)
	for _, word := range all {
		if len(all) <= 2 || m.random.IntN(7) > 0 {
			out = append(out, word)
		}
	}
	return out
}

func (m *maker) some(all []string, n int) []string {
	if len(all) == 0 {
		return nil
	}
	from := m.random.IntN(len(all))
	return all[from:min(len(all), from+n)]
}

// sibling is another tool of the same server, -1 if there is none.
func (m *maker) sibling(i int) int {
	all := m.siblings[m.server[i]]
	if other := all[m.random.IntN(len(all))]; other != i {
		return other
	}
	return -1
}
