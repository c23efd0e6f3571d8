package retrieve

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode"

	"toolfinch/index"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Why says where a query finds a tool, what stands above the tool, and what would bring it to the top.
type Why struct {
	Tool  string `json:"tool"`         // as clients see it; as asked if Out
	ID    string `json:"id,omitempty"` // server.tool
	Query string `json:"query"`
	// Out says what keeps the tool from being found by any query, and Reason the details; "" if the ranking decides.
	Out    Out    `json:"out,omitempty"`
	Reason string `json:"reason,omitempty"`

	Hybrid     bool         `json:"hybrid"` // vectors took part
	Confidence float64      `json:"confidence"`
	Answer     int          `json:"answer"`           // hits that a client gets
	Rank       int          `json:"rank"`             // 1 for the first; 0: the query does not find it
	Score      float64      `json:"score"`            // the sum of Parts
	Parts      []index.Part `json:"parts,omitempty"`  // of the score; one without a name details the previous one
	Above      []Above      `json:"above,omitempty"`  // the first hits above the tool
	Lacks      []string     `json:"lacks,omitempty"`  // words of the query that its name, title and description lack
	Server     string       `json:"server,omitempty"` // why its server cannot be called now
	Gated      bool         `json:"gated,omitempty"`  // clients must provision it before a call
	Change     *Change      `json:"change,omitempty"` // nil if the tool is first, or is out
}

// Out is what keeps a tool from being found.
type Out string

// The values of Out, the first that applies.
const (
	OutUnknown Out = "unknown" // no tool has the name
	OutServer  Out = "server"  // its server is disabled, was never listed, waits for a login
	OutHeld    Out = "held"    // its definition waits for approval
	OutHidden  Out = "hidden"  // the server's settings hide it, or its server offers it to no model
	OutView    Out = "view"    // the view does not have it
	OutPolicy  Out = "policy"  // a policy hides it from the caller
)

// Above is a hit that stands above the tool.
type Above struct {
	Rank  int          `json:"rank"`
	Tool  string       `json:"tool"`
	ID    string       `json:"id"`
	Score float64      `json:"score"`
	Leads []index.Part `json:"leads,omitempty"` // what it has more of than the tool, the largest first
}

// Change is a change of the tool's definition that was tried with the query.
type Change struct {
	Words []string `json:"words,omitempty"` // to add to the description
	Name  string   `json:"name,omitempty"`  // to give the tool; "" for the present one
	First bool     `json:"first"`           // with the change the tool is the first hit
}

// Bounds of a Why.
const (
	maxAbove = 5
	maxLeads = 6
	maxTries = 250     // of changes
	maxWhy   = 4 << 10 // bytes of the query
)

// WhyNot explains the rank of a tool for a query. The name is any that Catalog.Find takes.
func (r *Retriever) WhyNot(ctx context.Context, name string, q Query) (Why, error) {
	q.Text, q.Limit, q.Explain, q.Kinds = rawjson.Head(q.Text, maxWhy), cmp.Or(q.Limit, r.settings.TopK), true, nil
	t, ok := r.catalog.find(name)
	if !ok {
		return r.whyOut(name, q), nil
	}
	w := Why{Tool: t.Name, ID: t.Def.ID.String(), Query: q.Text, Lacks: MissingWords(q.Text, t), Gated: r.provisioner.gated()}
	for _, a := range r.searcher.absent() {
		if a.Server == t.Def.ID.Server && a.Held == 0 {
			w.Server = a.why()
		}
	}
	switch {
	case t.Def.App.NotModel:
		w.Out, w.Reason = OutHidden, "its server offers it to apps, and to no model"
	case !r.catalog.offers(t):
		w.Out, w.Reason = OutPolicy, "a policy allows its calls, and does not let it be found"
	}
	if w.Out != "" {
		return w, nil
	}
	query, reason, err := r.searcher.query(ctx, q)
	if err != nil {
		return Why{}, err
	}
	query.Place = t.Name
	found, err := r.rank(ctx, query, reason)
	if err != nil {
		return Why{}, err
	}
	w.of(found)
	r.doubt(q, &found)
	w.Answer, w.Confidence = len(found.Hits), found.Confidence
	if w.Rank != 1 {
		if !found.Hybrid {
			query.Vectors = nil // they did not fit
		}
		query.Explain = false
		w.Change, err = r.catalog.attempt(query).change(ctx, q.Text, w.Lacks)
	}
	return w, err
}

// whyOut says why no tool has the name.
func (r *Retriever) whyOut(name string, q Query) Why {
	w := Why{Tool: rawjson.Clip(name, maxQualified), Query: q.Text, Out: OutUnknown}
	absent := r.searcher.absent()
	of := slices.IndexFunc(absent, func(a Absent) bool { return a.mayHave(name) })
	held := r.catalog.held.because(name)
	switch because := unknownBecause(absent, name); {
	case of < 0 && held != "":
		w.Out, w.Reason = OutHeld, strings.TrimPrefix(held, "; ")
		return w
	case because != "":
		w.Out, w.Reason = OutServer, strings.TrimPrefix(because, "; ")
		return w
	}
	if near := r.catalog.Nearest(name, 3); len(near) > 0 {
		w.Reason = "nearest: " + strings.Join(near, ", ")
	}
	return w
}

// of takes the ranks and scores of a search.
func (w *Why) of(found Found) {
	place := found.place
	w.Hybrid, w.Rank, w.Score = found.Hybrid, place.Rank, place.Score
	if place.Why == nil {
		return
	}
	w.Parts = place.Why.Parts(found.Hybrid)
	for i, hit := range found.Hits[:min(len(found.Hits), maxAbove)] {
		if w.Rank > 0 && i+1 >= w.Rank {
			break
		}
		leads := hit.Why.Over(place.Why, found.Hybrid)
		w.Above = append(w.Above, Above{i + 1, hit.Name, hit.Def.ID.String(), hit.Score, leads[:min(len(leads), maxLeads)]})
	}
}

// attempt tries changes of one tool with one query, beside the catalog.
type attempt struct {
	catalog *Catalog
	query   index.Query // with the tool as its Place
	doc     index.Document
	lead    float64 // of the tool over the best other hit
	tries   int     // so far
}

func (c *Catalog) attempt(query index.Query) *attempt {
	query.Limit = max(query.Limit, 2)
	return &attempt{catalog: c, query: query, doc: c.documents([]string{query.Place})[0]}
}

// change looks for the fewest words that bring the tool to the top: in its description those that it lacks, then also
// others of the query, else in its name.
func (a *attempt) change(ctx context.Context, query string, lacks []string) (*Change, error) {
	all, values := tellingWords(query, nil), valuesIn(query)
	isValue := func(word string) bool { return slices.Contains(values, word) }
	general := slices.DeleteFunc(slices.Clone(all), isValue)
	described := &Change{}
	if err := a.try(ctx, described); err != nil {
		return nil, err
	}
	for _, words := range [][]string{slices.DeleteFunc(slices.Clone(lacks), isValue), general, lacks, all} {
		if err := a.add(ctx, described, words, Change.described); err != nil || described.First {
			return described, err
		}
	}
	for _, words := range [][]string{nil, described.Words} {
		named := &Change{Words: words}
		if err := a.try(ctx, named); err != nil {
			return nil, err
		}
		if err := a.add(ctx, named, general, a.named); err != nil || named.First {
			return named, err
		}
	}
	return described, nil
}

// valuesIn returns the words of a query, in lower case, that probably are data of this request alone: words with
// digits, and capitalized words within a sentence.
func valuesIn(query string) (words []string) {
	begins := true // a sentence
	for text := range strings.FieldsSeq(query) {
		for i, word := range strings.FieldsFunc(text, betweenWords) {
			if strings.ContainsFunc(word, unicode.IsDigit) || (!begins || i > 0) && strings.ContainsFunc(word, unicode.IsUpper) {
				words = append(words, strings.ToLower(word))
			}
		}
		begins = strings.ContainsAny(text[len(text)-1:], ".?!:")
	}
	return words
}

// described returns the change with one more word in the description.
func (c Change) described(word string) (*Change, bool) {
	c.Words = append(slices.Clip(c.Words), word)
	return &c, len(c.Words) <= maxMissing && !slices.Contains(c.Words[:len(c.Words)-1], word)
}

// named returns the change with one more word in the name, unless another tool has it.
func (a *attempt) named(c Change, word string) (*Change, bool) {
	name := cmp.Or(c.Name, inName(a.doc.Def.ID.Name))
	has := strings.Contains(name+"_", "_"+word+"_")
	c.Name = name + "_" + word
	return &c, !has && len(c.Name) <= maxShort && inName(c.Name) == c.Name && a.catalog.tools.get(c.Name) == nil && !slices.Contains(Reserved(), c.Name)
}

// add adds one word after the other, each time the one that helps most, until the tool is first. Then it leaves out
// those that a later one has made needless.
func (a *attempt) add(ctx context.Context, c *Change, words []string, with func(c Change, word string) (*Change, bool)) error {
	for !c.First && a.tries < maxTries {
		best, lead := c, a.lead
		for _, word := range words {
			next, allowed := with(*c, word)
			if !allowed {
				continue
			}
			if err := a.try(ctx, next); err != nil {
				return err
			}
			if a.lead > lead {
				best, lead = next, a.lead
			}
		}
		a.lead = lead
		if best == c {
			return nil
		}
		*c = *best
	}
	if !c.First {
		return nil
	}
	for _, word := range slices.Clone(c.Words) {
		fewer := Change{Name: c.Name, Words: slices.DeleteFunc(slices.Clone(c.Words), func(w string) bool { return w == word })}
		if err := a.try(ctx, &fewer); err != nil {
			return err
		}
		if fewer.First {
			*c = fewer
		}
	}
	return nil
}

// try searches with the change, and notes whether the tool is first, and its lead.
func (a *attempt) try(ctx context.Context, c *Change) error {
	a.tries++
	doc, def := a.doc, *a.doc.Def
	if len(c.Words) > 0 {
		def.Description += "\n" + tool.AlsoFor + strings.Join(c.Words, ", ")
	}
	if c.Name != "" {
		doc.Name, def.ID.Name = c.Name, c.Name
	}
	doc.Def = &def
	snapshot, err := a.catalog.snapshot.Instead(ctx, a.doc.Name, doc)
	if err != nil {
		return err
	}
	query := a.query
	query.Place = doc.Name
	if a.catalog.among != nil {
		query.Among = snapshot.Subset(slices.Concat(a.catalog.keys(), []string{doc.Name}))
	}
	found, err := snapshot.Search(ctx, query)
	if err != nil {
		return err
	}
	c.First, a.lead = found.Place.Rank == 1, found.Place.Score
	for _, hit := range found.Hits {
		if hit.Name != doc.Name {
			a.lead -= hit.Score
			break
		}
	}
	return nil
}
