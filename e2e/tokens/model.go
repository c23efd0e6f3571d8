package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/e2e/agents"
)

// player plays a model that has to call some tools, one after the other, as if it needed
// the result of each before the next. It calls what it is offered by name, and looks for
// the rest. It knows a tool once an answer has named it.
type player struct {
	foresees bool   // it asks for all its needs at once
	folder   string // where requests are kept; "" for nowhere
	script   bool   // it writes one script that calls them all, once it knows them
	own      bool   // the agent's own tool search is on
	byName   bool   // it takes tools from there by their names

	mu       sync.Mutex // guards the rest; held while a request is counted
	wants    []*want
	moves    []agents.Move // by the number of results before them
	last     kind          // of the last move
	asked    []*want       // by the last move
	began    time.Time     // the last move
	sums     conversation
	side     conversation // titles and the like: requests without the tools of the task
	steps    int
	sides    int
	retrieve int // retrievals
	missed   int // retrievals that did not name what was asked for
	refused  int // calls that were no success
	listed   []int
	waits    map[kind]time.Duration // from moves to the next request
	err      error
}

// want is a need and how far it is met.
type want struct {
	*need
	direct          bool // its server is in the agent itself
	asked           int  // how often it was looked for
	known, callable bool
	done, failed    bool
}

type kind string

const (
	start     kind = "start"
	retrieval kind = "retrieve"
	provision kind = "provision"
	call      kind = "call"
	script    kind = "script"
	end       kind = "end"
)

// maxSteps bounds a run that does not come to its end.
const maxSteps = 60

func newPlayer(order []string, needs []*need, c cell) *player {
	p := &player{foresees: c.Plan == foresees, byName: c.Plan == byName, own: c.Own, script: c.Strategy == "code", last: start, began: time.Now(), waits: map[kind]time.Duration{},
		sums: conversation{order: order}, side: conversation{order: order}}
	for _, n := range needs {
		p.wants = append(p.wants, &want{need: n, direct: c.Strategy == direct})
	}
	return p
}

// Next is the model's: see agents.Model.
func (p *player) Next(turn agents.Turn) agents.Move {
	p.mu.Lock()
	defer p.mu.Unlock()
	offered := p.offered(turn)
	if p.folder != "" {
		name := fmt.Sprintf("request-%d-%d.json", p.steps+p.sides, min(offered, 1))
		p.err = errors.Join(p.err, os.WriteFile(filepath.Join(p.folder, name), turn.Request, 0o600))
	}
	if offered == 0 {
		p.sides++
		if err := p.side.add(turn.Request); err != nil {
			p.err = err
		}
		return agents.Move{Text: "A task"}
	}
	p.steps++
	p.waits[p.last] += time.Since(p.began)
	p.listed = append(p.listed, len(turn.Tools))
	if err := p.sums.add(turn.Request); err != nil {
		p.err = err
	}
	n := len(turn.Results)
	switch {
	case p.steps > maxSteps || n > len(p.moves):
		p.err = fmt.Errorf("request %d has %d results of %d calls", p.steps, n, len(p.moves))
		return agents.Move{Text: done}
	case n < len(p.moves): // the agent asks again
		return p.moves[n]
	case n > 0:
		p.read(turn)
	}
	move := p.choose(turn)
	p.moves = append(p.moves, move)
	p.began = time.Now()
	return move
}

const done = "All of it is done."

// offered is how many tools of the request are for the task.
func (p *player) offered(turn agents.Turn) int {
	n := 0
	for _, name := range []string{"retrieve_tools", "discover_tools", "call_tool", ownSearch} {
		if _, ok := turn.Tool(name); ok {
			n++
		}
	}
	for _, w := range p.wants {
		if _, ok := w.in(turn); ok {
			n++
		}
	}
	return n
}

// ownSearch is Claude Code's.
const ownSearch = "ToolSearch"

// in is the tool as it is offered: agents join the server's name and the tool's in ways
// of their own, and some leave out that of a server which is directly in them.
func (w *want) in(turn agents.Turn) (agents.Tool, bool) {
	name := letters(w.exposed())
	i := slices.IndexFunc(turn.Tools, func(t agents.Tool) bool { return strings.HasSuffix(letters(t.Group+t.Name), name) })
	if i < 0 && w.direct {
		i = slices.IndexFunc(turn.Tools, func(t agents.Tool) bool { return t.Name == w.tool })
	}
	if i < 0 {
		return agents.Tool{}, false
	}
	return turn.Tools[i], true
}

func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || r == '/' {
			return -1
		}
		return r
	}, name)
}

// read takes in the result of the last move.
func (p *player) read(turn agents.Turn) {
	text := plain(json.RawMessage(turn.Results[len(turn.Results)-1]))
	switch p.last {
	case retrieval:
		for _, w := range p.wants { // whoever sees by the way what is needed later, remembers
			_, offered := w.in(turn)
			w.known = w.known || offered || names(text, w.exposed())
		}
		for _, w := range p.asked {
			if !w.known {
				p.missed++
				w.failed = w.asked > 1
			}
		}
	case provision:
		for _, w := range p.asked {
			w.callable = names(text, w.exposed())
			w.failed = !w.callable
		}
	case call, script:
		good := strings.Contains(text, "item 11")
		for _, w := range p.asked {
			w.done, w.failed = good, !good
		}
		if !good {
			p.refused++
			p.err = fmt.Errorf("%s was answered with %.300s", p.asked[0].exposed(), text)
		}
	}
}

// choose decides what to do now.
func (p *player) choose(turn agents.Turn) agents.Move {
	open := p.where(func(w *want) bool { return !w.done && !w.failed })
	p.last, p.asked = end, nil
	if len(open) == 0 {
		return agents.Move{Text: done}
	}
	unknown := p.where(func(w *want) bool {
		_, offered := w.in(turn)
		return !w.done && !w.failed && !w.known && !(offered && !p.script)
	})
	first := open[:1]
	next, offered := first[0].in(turn)
	switch {
	case p.script && len(unknown) == 0:
		return p.all(turn, open)
	case offered && !p.script:
		p.last, p.asked = call, first
		return agents.Move{Tool: next, Arguments: first[0].arguments}
	case p.script || !first[0].known:
		if !p.foresees {
			unknown = unknown[:1]
		}
		return p.find(turn, unknown)
	}
	return p.through(turn, first)
}

func (p *player) where(has func(*want) bool) (found []*want) {
	for _, w := range p.wants {
		if has(w) {
			found = append(found, w)
		}
	}
	return found
}

// find looks for tools, for one that was missed by the words of its name.
func (p *player) find(turn agents.Turn, wants []*want) agents.Move {
	var find agents.Tool
	ok := false
	for _, name := range []string{"retrieve_tools", "discover_tools", ownSearch} {
		if !ok {
			find, ok = turn.Tool(name)
		}
	}
	if !ok {
		return p.give(wants, fmt.Errorf("%s is not offered, nor is a search", wants[0].exposed()))
	}
	var queries []string
	for _, w := range wants {
		query := w.query
		if w.asked > 0 {
			query = w.server + " " + strings.NewReplacer("_", " ", "-", " ").Replace(w.tool)
		}
		if p.byName {
			query = "select:mcp__" + w.server + "__" + w.tool
		}
		w.asked++
		queries = append(queries, query)
	}
	p.last, p.asked = retrieval, wants
	p.retrieve++
	switch {
	case len(queries) == 1:
		return agents.Move{Tool: find, Arguments: map[string]any{"query": queries[0]}}
	case strings.Contains(string(find.Schema), `"queries"`):
		return agents.Move{Tool: find, Arguments: map[string]any{"queries": queries}}
	}
	return agents.Move{Tool: find, Arguments: map[string]any{"query": strings.Join(queries, "; "), "limit": 5 * len(queries)}}
}

// through calls a tool that is known and not offered.
func (p *player) through(turn agents.Turn, first []*want) agents.Move {
	w := first[0]
	if get, gated := turn.Tool("provision_tools"); gated && !w.callable {
		all := first
		if p.foresees {
			all = p.where(func(w *want) bool { return w.known && !w.callable && !w.done && !w.failed })
		}
		var ids []string
		for _, w := range all {
			ids = append(ids, w.exposed())
		}
		p.last, p.asked = provision, all
		return agents.Move{Tool: get, Arguments: map[string]any{"tool_ids": ids}}
	}
	p.last, p.asked = call, first
	if through, ok := turn.Tool("execute_tool"); ok {
		return agents.Move{Tool: through, Arguments: map[string]any{"tool_id": w.exposed(), "arguments": w.arguments}}
	}
	if through, ok := turn.Tool("call_tool"); ok {
		return agents.Move{Tool: through, Arguments: map[string]any{"name": w.exposed(), "arguments": w.arguments}}
	}
	return p.give(first, fmt.Errorf("%s is found, and there is no way to call it", w.exposed()))
}

// all writes a script that calls the tools and says whether each has answered.
func (p *player) all(turn agents.Turn, wants []*want) agents.Move {
	run, ok := turn.Tool("run_script")
	if !ok {
		return p.give(wants, fmt.Errorf("run_script is not offered"))
	}
	text := "answered = 0\n"
	for _, w := range wants {
		arguments, _ := json.Marshal(w.arguments) // they came from JSON
		text += fmt.Sprintf("answered += int(\"item 11\" in str(call_tool(%q, **json.decode(%q))))\n", w.exposed(), arguments)
	}
	p.last, p.asked = script, wants
	return agents.Move{Tool: run, Arguments: map[string]any{"script": text + fmt.Sprintf("result = \"item 11 of each\" if answered == %d else answered\n", len(wants))}}
}

// give gives up.
func (p *player) give(wants []*want, err error) agents.Move {
	for _, w := range wants {
		w.failed = true
	}
	p.err = err
	return agents.Move{Text: done}
}

// plain is the text of a result, which agents wrap in ways of their own: all strings in
// it, and in JSON within them.
func plain(raw json.RawMessage) string {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return string(raw)
	}
	var out strings.Builder
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case string:
			var inner any
			if strings.ContainsAny(value[:min(1, len(value))], "{[") && json.Unmarshal([]byte(value), &inner) == nil {
				walk(inner)
				return
			}
			out.WriteString(value + "\n")
		case []any:
			for _, v := range value {
				walk(v)
			}
		case map[string]any:
			for key, v := range value {
				out.WriteString(key + "\n")
				walk(v)
			}
		case float64:
			fmt.Fprintln(&out, value)
		}
	}
	walk(value)
	return out.String()
}

// names reports whether the text has the name as a word.
func names(text, name string) bool {
	part := func(c byte) bool {
		return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	for at := 0; ; at++ {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		at += i
		after := at + len(name)
		if (at == 0 || !part(text[at-1])) && (after == len(text) || !part(text[after])) {
			return true
		}
	}
}
