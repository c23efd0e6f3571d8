package retrieve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// need is one query of retrieve_tools and its hits.
type need struct {
	Query
	Found
	above []string // names of hits that an earlier need shows
}

// parseQueries reads the arguments of retrieve_tools: one query for each need. Its errors are *args.Errors.
func (r *Retriever) parseQueries(arguments json.RawMessage) ([]Query, error) {
	q := Query{Detail: DetailSummary}
	var kind string
	var texts []string
	err := args.Read(RetrieveTools, shaped(arguments, "query", "queries", "limit"),
		args.Text("query", &q.Text),
		args.Texts("queries", &texts),
		args.Int("limit", &q.Limit, 0, MaxLimit),
		args.Text("server", &q.Server),
		args.OneOf("detail", &q.Detail, string(DetailName), string(DetailSummary), string(DetailFull)),
		args.OneOf("kind", &kind, "tool", "prompt", "resource", "skill", "any"),
	)
	switch {
	case err != nil:
		return nil, err
	case len(texts) > MaxNeeds:
		return nil, args.Refuse("queries has %d needs: ask for at most %d at once", len(texts), MaxNeeds)
	case len(texts) > 0 && q.Text != "":
		return nil, args.Refuse("send either query or queries; queries takes all needs at once")
	case len(texts) == 0:
		texts = []string{q.Text}
	}
	q.Limit = r.limit(q.Limit, len(texts))
	q.Kinds = queryKinds[kind]
	queries := make([]Query, len(texts))
	for i, text := range texts {
		if strings.TrimSpace(text) == "" {
			return nil, args.Refuse("query is empty: say in a few words what the tool should do, like \"create a calendar event\"")
		}
		queries[i] = q
		queries[i].Text = text
	}
	return queries, r.CheckServer(q.Server)
}

// limit returns how many hits each of n needs gets; asked is 0 if the client named no limit. Several needs share
// the tools of two answers: a missing tool costs another retrieval, which is dearer than a superfluous tool.
func (r *Retriever) limit(asked, n int) int {
	switch {
	case asked > 0:
		return min(asked, MaxLimit/n)
	case n == 1:
		return r.settings.TopK
	}
	return min(r.settings.TopK, max(2, (2*r.settings.TopK+n)/(n+1)))
}

// find runs all queries side by side.
func (r *Retriever) find(ctx context.Context, queries []Query) ([]need, error) {
	needs, failures := make([]need, len(queries)), make([]error, len(queries))
	var searches sync.WaitGroup
	for i, q := range queries {
		needs[i].Query = q
		searches.Go(func() { needs[i].Found, failures[i] = r.Search(ctx, q) })
	}
	searches.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return needs, nil
}

// onceEach removes a hit from all needs but the first that has it.
func onceEach(needs []need) {
	seen := map[*tool.Tool]bool{}
	for i := range needs {
		var own []Hit
		for _, hit := range needs[i].Hits {
			if seen[hit.Tool] {
				needs[i].above = append(needs[i].above, hit.Name)
				continue
			}
			seen[hit.Tool] = true
			own = append(own, hit)
		}
		needs[i].Hits = own
	}
}

// Retrieve is the handler of retrieve_tools: search, register, answer.
func (r *Retriever) Retrieve(ctx context.Context, call *tool.Call) (tool.Result, error) {
	queries, err := r.parseQueries(call.Arguments)
	if err != nil {
		return tool.ErrorResult(err.Error()), nil
	}
	needs, err := r.find(ctx, queries)
	if err != nil {
		return nil, err
	}
	for _, n := range slices.Backward(needs) { // the first need counts as the latest query, because it shows the shared hits
		r.noteFound(call, n.Text, n.Hits)
	}
	onceEach(needs)
	producers := r.producers(call, needs)
	registered := r.registered(ctx, call, needs, producers)
	if queries[0].Detail != DetailFull {
		return tool.TextResult(r.text(call.Session, needs, producers, registered)), nil
	}
	if len(needs) == 1 {
		return r.answer(queries[0], needs[0].Found, registered, maxHit).with(producers).result(), nil
	}
	answers := make([]answer, len(needs))
	for i, n := range needs {
		answers[i] = r.answerTo(n, registered, maxHit/len(needs))
	}
	return answer(rawjson.Of(map[string]json.RawMessage{"needs": rawjson.Array(answers)})).with(producers).result(), nil
}

// producers returns what the hits need and this session was not shown, and remembers what it is shown now.
func (r *Retriever) producers(call *tool.Call, needs []need) []Needed {
	answers := make([][]Hit, len(needs))
	for i, n := range needs {
		answers[i] = n.Hits
	}
	return r.catalog.neededBy(call.Session, answers)
}

// answerTo returns the answer to one of several needs; see answer.
func (r *Retriever) answerTo(n need, registered Registration, room int) answer {
	out := rawjson.NewObject(0)
	out.AddText("query", n.Text)
	if n.above != nil {
		out.Add("above", rawjson.Of(n.above))
	}
	for name, value := range rawjson.Members(r.answer(n.Query, n.Found, registered, room)) {
		out.Add(name, value)
	}
	return answer(out.JSON())
}

// text returns the hits as models read them: a name, a line, and the parameters of each tool. A tool that the model
// has in its list gets only the reason why it was found.
func (r *Retriever) text(session string, needs []need, producers []Needed, registered Registration) string {
	var b strings.Builder
	waits := false // some tool must be provisioned first
	about := r.describeAll(needs, registered)
	for i, n := range needs {
		if len(needs) > 1 {
			fmt.Fprintf(&b, "# %s\n", rawjson.Clip(printable.Line(n.Text), maxParameter))
		}
		for _, name := range n.above {
			fmt.Fprintf(&b, "%s: see above\n", name)
		}
		for j, hit := range n.Hits {
			b.WriteString(about[i][j] + "\n")
			waits = waits || r.gated() && hit.Def.ID.Kind == tool.KindTool && !registered.Names[hit.Name]
		}
		switch {
		case len(n.Hits)+len(n.above) == 0:
			b.WriteString("Nothing was found.\n")
		case n.Confidence < Confident:
			b.WriteString("Perhaps none of these is what you need.\n")
		}
		if words := n.NotMentioned(); words != "" {
			b.WriteString(words + "\n")
		}
	}
	for _, p := range producers {
		b.WriteString(p.line(needs[0].Detail, registered.Names[p.Name] && registered.Relisted) + "\n")
	}
	for _, line := range described(r.absentTo(session, needs)) {
		b.WriteString("Not there: " + line + "\n")
	}
	if waits {
		b.WriteString(notProvisioned + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// absentTo returns the servers that any of the needs missed, each once. If the answer to no need is in doubt, a session
// is told of the same servers once, and a client without sessions of none.
func (r *Retriever) absentTo(session string, needs []need) (all []Absent) {
	doubt, names := false, ""
	for _, n := range needs {
		doubt = doubt || n.Confidence < Confident
		for _, a := range n.Absent {
			if !slices.ContainsFunc(all, func(b Absent) bool { return a.Server == b.Server }) {
				all = append(all, a)
				names += a.Server + "\n"
			}
		}
	}
	news := session != "" && len(all) > 0 && r.catalog.told.first(session, rawjson.Head(names, maxNames))
	if !doubt && !news {
		return nil
	}
	return all
}

// describeAll describes each hit of each need. If there is no room for all, the least likely hits keep only their
// first line.
func (r *Retriever) describeAll(needs []need, registered Registration) [][]string {
	all, size, most := make([][]string, len(needs)), 0, 0
	for i, n := range needs {
		for _, hit := range n.Hits {
			text := r.describeHit(n, hit, registered)
			all[i] = append(all[i], text)
			size += len(text)
		}
		most = max(most, len(n.Hits))
	}
	for rank := most - 1; rank >= 0; rank-- {
		for i := len(all) - 1; i >= 0 && size > maxAnswer; i-- {
			if rank >= len(all[i]) || rank == 0 && i == 0 { // the best hit has its own bound, maxHit
				continue
			}
			if first, rest, more := strings.Cut(all[i][rank], "\n"); more {
				all[i][rank] = first + "\n parameters: ask for it alone"
				size -= len(rest)
			}
		}
	}
	return all
}

// describeHit describes a hit so that a model can use it.
func (r *Retriever) describeHit(n need, hit Hit, registered Registration) string {
	def := hit.Def
	if def.ID.Kind != tool.KindTool {
		return r.describeNonTool(n.Query, hit)
	}
	listed := registered.Names[hit.Name]
	var marks []string
	switch {
	case r.gated() && !listed:
		marks = append(marks, "not registered")
	case !r.gated() && listed && registered.Relisted:
		marks = append(marks, "listed; found by "+why(n.Text, n.Hybrid, hit))
	}
	if r.settings.Offer.Split {
		marks = append(marks, KindOf(def.Annotations).String())
	}
	if n.Detail == DetailName {
		return hit.Name
	}
	if !r.gated() && listed && registered.Relisted {
		return head(hit.Name, marks, def.Description)
	}
	return head(hit.Name, marks, def.Description) + r.catalog.written.parametersOf(def)
}

// ParseQuery reads the arguments of retrieve_tools for a single query. Its errors are *args.Errors.
func (r *Retriever) ParseQuery(arguments json.RawMessage) (Query, error) {
	queries, err := r.parseQueries(arguments)
	if err != nil {
		return Query{}, err
	}
	return queries[0], nil
}

// registered registers the found tools and returns which are registered. A gated view registers nothing: it returns
// which can be called.
func (r *Retriever) registered(ctx context.Context, call *tool.Call, needs []need, producers []Needed) Registration {
	if !needs[0].tools() || r.settings.Register == nil && !r.gated() {
		return Registration{}
	}
	var tools, best []*tool.Tool
	for _, n := range needs {
		for i, hit := range n.Hits {
			if hit.Def.ID.Kind != tool.KindTool { // only tools are registered
				continue
			}
			tools = append(tools, hit.Tool)
			if i == 0 && n.above == nil && n.Confidence >= Confident {
				best = append(best, hit.Tool)
			}
		}
	}
	for _, p := range producers {
		tools = append(tools, p.Tool)
	}
	if !r.gated() {
		return r.settings.Register(ctx, call, tools, best)
	}
	registered := Registration{Names: map[string]bool{}}
	callable := r.callable(call)
	for _, t := range tools {
		registered.Names[t.Name] = callable(t)
	}
	return registered
}
