package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/proxytool"
	"toolfinch/rawjson"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
)

const (
	// savePause is how long the accountant gathers before it counts and saves.
	savePause = 5 * time.Second
	// saveAtEnd bounds what is counted and saved when Run ends.
	saveAtEnd = 5 * time.Second

	// maxHeld is how many bytes of answers are held to be counted at a time: what is
	// beyond is estimated, so that under load counting takes some hundredths of a
	// processor and no more memory.
	maxHeld = 1 << 20
	// maxListed bounds the tools of the lists that wait to be accounted, maxNotes all
	// that waits.
	maxListed = 1 << 20
	maxNotes  = 1 << 16
	// maxAccounts bounds the pairs of a view and a client that are told apart, because
	// clients may call themselves anything; maxAccounted the sessions.
	maxAccounts  = 1000
	maxAccounted = 10_000
)

// accountant keeps account of what listing every tool would have cost the models
// of the clients, and of what they were sent instead. Where a client waits only a
// note is made; settle counts.
type accountant struct {
	db     *store.Store
	log    *slog.Logger
	counts func(ctx context.Context, fresh map[string]int) // keeps counts of definitions
	seed   maphash.Seed

	mu    sync.Mutex // guards what follows; held for an append, never over anything else
	notes []note
	held  int // bytes of the answers among notes
	tools int // of the lists among notes
	lost  int // notes there was no room for

	noted chan struct{} // wakes run: there are notes
	much  chan struct{} // hurries it: half of what may wait does

	working  sync.Mutex // guards what follows; held while tokens are counted and those of definitions kept, never where a client waits
	sessions map[string]*accounted
	unsaved  map[account]store.Savings
	all      map[account]store.Savings // since the start
	counted  struct{ bytes, tokens int }
}

// account is what sums are kept by.
type account struct{ view, client string }

// accounted is a session and what it has received.
type accounted struct {
	account
	full int64               // tokens of listing every tool, at its most
	seen map[uint64]struct{} // definitions, by name and content
}

// note is something that is to be accounted: a list, an answer, or the end of a
// session.
type note struct {
	kind            noteKind
	view            *View
	session, client string
	tools           []*tool.Tool
	answer          tool.Result // nil of one that is only to be estimated
	size            int         // bytes of the answer
}

type noteKind int

const (
	noteList noteKind = iota
	noteAnswer
	noteEnd
)

func newAccountant(db *store.Store, log *slog.Logger, counts func(ctx context.Context, fresh map[string]int)) *accountant {
	return &accountant{
		db: db, log: log, counts: counts, seed: maphash.MakeSeed(),
		noted: make(chan struct{}, 1), much: make(chan struct{}, 1),
		sessions: map[string]*accounted{}, unsaved: map[account]store.Savings{}, all: map[account]store.Savings{},
	}
}

// listed notes a tools/list answer of a view. session is "" for a client that has
// none; nobody may change tools afterwards.
func (a *accountant) listed(v *View, session, client string, tools []*tool.Tool) {
	a.note(note{kind: noteList, view: v, session: session, client: client, tools: tools})
}

// forget notes that a session has ended.
func (a *accountant) forget(session string) { a.note(note{kind: noteEnd, session: session}) }

// note never blocks: a client waits. The end of a session is never lost.
func (a *accountant) note(n note) {
	a.mu.Lock()
	if n.kind != noteEnd && (len(a.notes) >= maxNotes || a.tools+len(n.tools) > maxListed) {
		a.lost++
		a.mu.Unlock()
		return
	}
	if a.held+len(n.answer) > maxHeld {
		n.answer = nil
	}
	a.notes = append(a.notes, n)
	a.held += len(n.answer)
	a.tools += len(n.tools)
	much := len(a.notes) >= maxNotes/2 || a.tools >= maxListed/2
	a.mu.Unlock()
	wake(a.noted)
	if much {
		wake(a.much)
	}
}

// around returns meta-tools of a view, those whose answers carry definitions with
// handlers that note what they answer. proxyTool is the name of the view's proxy
// tool, "" for none.
func (a *accountant) around(v *View, tools []*tool.Tool, proxyTool string) []*tool.Tool {
	out := slices.Clone(tools)
	for i, t := range out {
		switch {
		case proxyTool != "" && t.Name == proxyTool:
			out[i] = a.answering(v, t, carriesDefinitions)
		case answersDefinitions(t.Name):
			out[i] = a.answering(v, t, nil)
		}
	}
	return out
}

// answersDefinitions reports whether the meta-tool of that name answers with
// definitions.
func answersDefinitions(name string) bool {
	switch name {
	case retrieve.RetrieveTools, retrieve.DiscoverTools, retrieve.ProvisionTools, retrieve.ListProvisioned:
		return true
	}
	// Those of views and servers begin with their names: see retrieve.SearchNames.
	return strings.HasSuffix(name, "_search_tools") || strings.HasSuffix(name, "_describe_tool")
}

// carriesDefinitions reports whether a call of the proxy tool may be answered with
// definitions.
func carriesDefinitions(call *tool.Call) bool {
	switch proxytool.Action(rawjson.Text(rawjson.Member(call.Arguments, "action"))) {
	case proxytool.ActionList, proxytool.ActionInfo, proxytool.ActionBatch:
		return true
	}
	return false
}

// answering is t with its answers noted, of calls that are counted; nil counts all.
func (a *accountant) answering(v *View, t *tool.Tool, counted func(*tool.Call) bool) *tool.Tool {
	return &tool.Tool{Name: t.Name, Def: t.Def, Handler: func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := t.Handler(ctx, call)
		if err == nil && (counted == nil || counted(call)) {
			n := note{kind: noteAnswer, view: v, session: call.Session, answer: result, size: len(result)}
			if call.Client != nil {
				n.client = call.Client.Name
			}
			a.note(n)
		}
		return result, err
	}}
}

// run counts and saves what is noted until ctx ends, and then the rest.
func (a *accountant) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-a.noted:
		}
		pause := time.NewTimer(savePause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-a.much:
		}
		pause.Stop()
		if ctx.Err() == nil {
			a.settle(ctx)
			a.save(ctx)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveAtEnd)
	defer cancel()
	a.settle(ctx)
	a.save(ctx)
}

// totals are the sums since the start, of all that was noted, by view and client.
// Their Day is empty.
func (a *accountant) totals(ctx context.Context) []store.Savings {
	a.settle(ctx)
	a.working.Lock()
	defer a.working.Unlock()
	return rows(a.all)
}

func rows(sums map[account]store.Savings) []store.Savings {
	return slices.SortedFunc(maps.Values(sums), func(x, y store.Savings) int {
		return cmp.Or(cmp.Compare(x.View, y.View), cmp.Compare(x.Client, y.Client))
	})
}

// settle accounts what was noted, in its order.
func (a *accountant) settle(ctx context.Context) {
	a.working.Lock()
	defer a.working.Unlock()
	a.mu.Lock()
	notes, lost := a.notes, a.lost
	a.notes, a.held, a.tools, a.lost = nil, 0, 0, 0
	a.mu.Unlock()
	if lost > 0 {
		a.log.Warn("too much at once: lists or answers are missing from the account of savings", "missing", lost)
	}
	for _, n := range notes {
		switch n.kind {
		case noteList:
			a.takeList(ctx, n)
		case noteAnswer:
			a.takeAnswer(ctx, n)
		case noteEnd:
			delete(a.sessions, n.session)
		}
	}
}

// takeList accounts a list: of a session what it had not received before. A
// client without sessions is one with every list.
func (a *accountant) takeList(ctx context.Context, n note) {
	s := a.sessions[n.session]
	if s == nil {
		s = &accounted{account: account{n.view.name, n.client}, seen: map[uint64]struct{}{}}
		if n.session != "" {
			if len(a.sessions) >= maxAccounted {
				for any := range a.sessions {
					delete(a.sessions, any)
					break
				}
			}
			a.sessions[n.session] = s
		}
		a.add(s.account, store.Savings{Sessions: 1})
	}
	var listed int64
	for _, t := range n.tools {
		key := maphash.Comparable(a.seed, [2]string{t.Name, t.Def.Hash})
		if _, seen := s.seen[key]; !seen {
			s.seen[key] = struct{}{}
			listed += int64(n.view.catalog.Tokens(t))
		}
	}
	a.add(s.account, store.Savings{Full: s.raise(a.fullOf(ctx, n.view)), Listed: listed})
}

// takeAnswer accounts an answer, under the session's client where it has one.
func (a *accountant) takeAnswer(ctx context.Context, n note) {
	sum := store.Savings{Retrievals: 1, Answers: int64(a.tokensOf(n))}
	s := a.sessions[n.session]
	if s == nil {
		a.add(account{n.view.name, n.client}, sum)
		return
	}
	sum.Full = s.raise(a.fullOf(ctx, n.view))
	a.add(s.account, sum)
}

// raise makes full what listing everything costs now, if that is more than
// before, and returns by how much. A session that began before its servers were
// listed would have been listed their tools later.
func (s *accounted) raise(full int64) (by int64) {
	by = max(0, full-s.full)
	s.full += by
	return by
}

// fullOf is what listing every tool of a view costs.
func (a *accountant) fullOf(ctx context.Context, v *View) int64 {
	if tokens, complete := v.catalog.ListingTokens(); complete {
		return int64(tokens)
	}
	if fresh := v.catalog.CountTokens(ctx); len(fresh) > 0 {
		a.counts(ctx, fresh)
	}
	return int64(v.catalog.ListingCost())
}

// tokensOf counts an answer, or estimates it by those that were counted.
func (a *accountant) tokensOf(n note) int {
	if n.answer == nil {
		if a.counted.bytes == 0 {
			return n.size / 8 // four bytes a token, and most say everything twice
		}
		return int(int64(n.size) * int64(a.counted.tokens) / int64(a.counted.bytes))
	}
	tokens := tool.CountTokens(definitionsIn(json.RawMessage(n.answer)))
	a.counted.bytes += n.size
	a.counted.tokens += tokens
	return tokens
}

// definitionsIn is the text of an answer that carries definitions: of a batch of
// the proxy tool without the results of called tools.
func definitionsIn(answer json.RawMessage) []byte {
	var text []byte
	for block := range rawjson.Elements(rawjson.Member(answer, "content")) {
		of := block
		switch rawjson.Text(rawjson.Member(block, "type")) {
		case "text":
		case "resource":
			of = rawjson.Member(block, "resource")
		default:
			continue
		}
		read := rawjson.Text(rawjson.Member(of, "text"))
		if proxied(block) != proxytool.ActionBatch {
			text = append(text, read...)
			continue
		}
		for result := range rawjson.Elements([]byte(read)) {
			if action := proxied(first(result)); action == proxytool.ActionList || action == proxytool.ActionInfo {
				text = append(text, result...)
			}
		}
	}
	return text
}

// first is the first content block of a result, nil without.
func first(result json.RawMessage) json.RawMessage {
	for block := range rawjson.Elements(rawjson.Member(result, "content")) {
		return block
	}
	return nil
}

// proxied is what the proxy tool did to answer with a content block, "" where it
// did not.
func proxied(block json.RawMessage) proxytool.Action {
	return proxytool.Action(rawjson.Text(rawjson.Member(rawjson.Member(block, "annotations"), "proxyAction")))
}

// add adds to an account. Accounts that are too many are those of a view's other
// clients, without a name.
func (a *accountant) add(to account, sum store.Savings) {
	if _, known := a.all[to]; !known && len(a.all) >= maxAccounts {
		to.client = ""
	}
	for _, sums := range []map[account]store.Savings{a.all, a.unsaved} {
		sums[to] = plus(store.Savings{View: to.view, Client: to.client}, sums[to], sum)
	}
}

// plus adds sums to the first, whose they are.
func plus(of store.Savings, sums ...store.Savings) store.Savings {
	for _, s := range sums {
		of.Sessions += s.Sessions
		of.Retrievals += s.Retrievals
		of.Full += s.Full
		of.Listed += s.Listed
		of.Answers += s.Answers
	}
	return of
}

// save writes what was not written yet. What cannot be is kept for the next time.
func (a *accountant) save(ctx context.Context) {
	a.working.Lock()
	unsaved := a.unsaved
	a.unsaved = map[account]store.Savings{}
	a.working.Unlock()
	if len(unsaved) == 0 {
		return
	}
	day := time.Now().UTC().Format(time.DateOnly)
	sums := rows(unsaved)
	for i := range sums {
		sums[i].Day = day
	}
	err := a.db.AddSavings(ctx, sums)
	if err == nil {
		return
	}
	a.log.Warn("savings are not written to the store yet", "error", err)
	a.working.Lock()
	defer a.working.Unlock()
	for of, sum := range unsaved {
		a.unsaved[of] = plus(store.Savings{View: of.view, Client: of.client}, a.unsaved[of], sum)
	}
}

// Savings is what listing every tool would have cost the models of the clients
// since Open, and what they were sent instead, in tokens, by view and client. Day
// is empty. What came since it was counted last is counted first, which under load
// takes up to 0.1 s.
func (p *Proxy) Savings(ctx context.Context) []store.Savings { return p.savings.totals(ctx) }
