package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/big"
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
	// saveEvery is how long the accountant gathers before it counts and saves. What
	// is left when Run ends may take as long.
	saveEvery = 5 * time.Second
	// maxWaiting bounds what waits to be counted, in bytes: counting as much takes up
	// to 0.4 s.
	maxWaiting = 4 << 20
	// maxAccounts bounds the pairs of a view and a client that are told apart, because
	// clients may call themselves anything.
	maxAccounts = 1000
	// maxAccounted bounds the sessions, maxNumbered the definitions that they are
	// remembered to have received.
	maxAccounted = 10_000
	maxNumbered  = 200_000
	// maxIdle ends the session of a client that has none in its protocol.
	maxIdle = 30 * time.Minute
)

// accountant keeps account of what listing every tool would have cost the models
// of the clients, and of what they were sent instead. Where a client waits only a
// note is made; settle counts.
type accountant struct {
	db     *store.Store
	log    *slog.Logger
	counts func(ctx context.Context, fresh map[string]int) // keeps counts of definitions
	seed   maphash.Seed

	mu      sync.Mutex // guards what follows; held for an append, never over anything else
	notes   []note
	ended   []string // IDs of sessions
	waiting int      // bytes of the notes
	lost    int      // notes there was no room for

	working  sync.Mutex // guards what follows; held while tokens are counted and sums are written, never where a client waits
	sessions map[string]*accounted
	numbers  map[uint64]int // of definitions, by the hash of name and content
	unsaved  map[account]store.Savings
	all      map[account]store.Savings // since the start
}

// account is what sums are kept by.
type account struct{ view, client string }

// accounted is a session and what it has received.
type accounted struct {
	account
	key  string
	used time.Time
	full int64   // tokens of listing every tool, at its most
	seen big.Int // the bits of the numbers of definitions
}

// note is a list or an answer that is to be accounted.
type note struct {
	account
	view    *View
	session string
	at      time.Time
	tools   []*tool.Tool
	answer  tool.Result // nil of a list
	search  bool        // it answers a search for tools
}

// key is that of the note's session: its ID, else the view and the client.
func (n note) key() string { return cmp.Or(n.session, "\x00"+n.account.view+"\x00"+n.client) }

func newAccountant(db *store.Store, log *slog.Logger, counts func(ctx context.Context, fresh map[string]int)) *accountant {
	return &accountant{
		db: db, log: log, counts: counts, seed: maphash.MakeSeed(), sessions: map[string]*accounted{},
		numbers: map[uint64]int{}, unsaved: map[account]store.Savings{}, all: map[account]store.Savings{},
	}
}

// listed notes a tools/list answer of a view. session is "" for a client that has
// none: those of a view that call themselves the same have one together then,
// whoever they were authenticated as. Nobody may change tools afterwards.
func (a *accountant) listed(v *View, session, client string, tools []*tool.Tool) {
	a.note(note{account: account{v.name, client}, view: v, session: session, tools: tools})
}

// forget notes that a session has ended. That is never lost.
func (a *accountant) forget(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = append(a.ended, session)
}

// note never blocks: a client waits.
func (a *accountant) note(n note) {
	size := 128 + len(n.answer) + 8*len(n.tools)
	n.at = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting > 0 && a.waiting+size > maxWaiting {
		a.lost++
		return
	}
	a.notes = append(a.notes, n)
	a.waiting += size
}

// around returns meta-tools of a view, those whose answers carry definitions with
// handlers that note what they answer. proxyTool is the name of the view's proxy
// tool, "" for none.
func (a *accountant) around(v *View, tools []*tool.Tool, proxyTool string) []*tool.Tool {
	out := slices.Clone(tools)
	for i, t := range out {
		proxies := proxyTool != "" && t.Name == proxyTool
		search := !proxies && searches(t.Name)
		if !proxies && !search && !describes(t.Name) {
			continue
		}
		out[i] = &tool.Tool{Name: t.Name, Def: t.Def, Handler: func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			result, err := t.Handler(ctx, call)
			calls := proxies && rawjson.Text(rawjson.Member(call.Arguments, "action")) == string(proxytool.ActionCall)
			if err == nil && len(result) > 0 && !result.Failed() && !calls {
				n := note{account: account{view: v.name}, view: v, session: call.Session, answer: result, search: search}
				if call.Client != nil {
					n.client = call.Client.Name
				}
				a.note(n)
			}
			return result, err
		}}
	}
	return out
}

// searches reports whether the meta-tool of that name searches. Those of views and
// servers begin with their names: see retrieve.SearchNames.
func searches(name string) bool {
	return name == retrieve.RetrieveTools || name == retrieve.DiscoverTools || strings.HasSuffix(name, "_search_tools")
}

// describes reports whether another meta-tool of that name answers with definitions.
func describes(name string) bool {
	return name == retrieve.ProvisionTools || name == retrieve.ListProvisioned || strings.HasSuffix(name, "_describe_tool")
}

// run counts and saves what is noted until ctx ends, and then the rest.
func (a *accountant) run(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			a.save(ctx)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveEvery)
	defer cancel()
	a.save(ctx)
}

// totals are the sums since the start, of all that was noted, by view and client.
// Their Day is empty.
func (a *accountant) totals(ctx context.Context) []store.Savings {
	a.working.Lock()
	defer a.working.Unlock()
	a.settle(ctx)
	return rows(a.all)
}

func rows(sums map[account]store.Savings) []store.Savings {
	return slices.SortedFunc(maps.Values(sums), func(x, y store.Savings) int {
		return cmp.Or(cmp.Compare(x.View, y.View), cmp.Compare(x.Client, y.Client))
	})
}

// save counts, and writes what was not written yet. What cannot be is kept for the
// next time.
func (a *accountant) save(ctx context.Context) {
	a.working.Lock()
	defer a.working.Unlock()
	a.settle(ctx)
	if len(a.unsaved) == 0 {
		return
	}
	sums := rows(a.unsaved)
	for i := range sums {
		sums[i].Day = time.Now().UTC().Format(time.DateOnly)
	}
	if err := a.db.AddSavings(ctx, sums); err != nil {
		a.log.Warn("savings are not written to the store yet", "error", err)
		return
	}
	clear(a.unsaved)
}

// settle accounts what was noted, in its order. Sessions end last: an answer may be
// under way when its session does. The lock working is held.
func (a *accountant) settle(ctx context.Context) {
	a.mu.Lock()
	notes, ended, lost := a.notes, a.ended, a.lost
	a.notes, a.ended, a.waiting, a.lost = nil, nil, 0, 0
	a.mu.Unlock()
	if lost > 0 {
		a.log.Warn("too much at once: lists or answers are missing from the account of savings", "missing", lost)
	}
	for _, n := range notes {
		if n.answer == nil {
			a.takeList(ctx, n)
		} else {
			a.takeAnswer(ctx, n)
		}
	}
	for _, session := range ended {
		delete(a.sessions, session)
	}
}

// takeList accounts a list: of a session what it had not received before.
func (a *accountant) takeList(ctx context.Context, n note) {
	if len(a.numbers) > maxNumbered {
		clear(a.numbers)
		clear(a.sessions)
	}
	s := a.session(n)
	if s == nil {
		s = a.begin(n)
		a.add(s.account, store.Savings{Sessions: 1})
	}
	var listed int64
	for _, t := range n.tools {
		key := maphash.Comparable(a.seed, [2]string{t.Name, t.Def.Hash})
		number, known := a.numbers[key]
		if !known {
			number = len(a.numbers)
			a.numbers[key] = number
		}
		if s.seen.Bit(number) == 0 {
			s.seen.SetBit(&s.seen, number, 1)
			listed += int64(n.view.catalog.Tokens(t))
		}
	}
	a.add(s.account, store.Savings{Full: a.more(ctx, s, n.view), Listed: listed})
}

// takeAnswer accounts an answer, under the session's client where it has one.
func (a *accountant) takeAnswer(ctx context.Context, n note) {
	to, sum := n.account, store.Savings{Answers: int64(tool.CountTokens(definitionsIn(json.RawMessage(n.answer))))}
	if n.search {
		sum.Retrievals = 1
	}
	if s := a.session(n); s != nil {
		to, sum.Full = s.account, a.more(ctx, s, n.view)
	}
	a.add(to, sum)
}

// session is the session of a note, nil where none has begun: a list begins it.
func (a *accountant) session(n note) *accounted {
	s := a.sessions[n.key()]
	if s == nil || n.session == "" && n.at.Sub(s.used) > maxIdle {
		return nil
	}
	s.used = n.at
	return s
}

// begin begins the session of a note. Where there are too many those that were not
// used for longest make room, a tenth at a time.
func (a *accountant) begin(n note) *accounted {
	if len(a.sessions) >= maxAccounted {
		oldest := slices.SortedFunc(maps.Values(a.sessions), func(x, y *accounted) int { return x.used.Compare(y.used) })
		for _, s := range oldest[:maxAccounted/10] {
			delete(a.sessions, s.key)
		}
	}
	s := &accounted{account: n.account, key: n.key(), used: n.at}
	a.sessions[s.key] = s
	return s
}

// more is by how much listing every tool of its view costs a session more now than
// ever before. One that began before its servers were listed would have been
// listed their tools later.
func (a *accountant) more(ctx context.Context, s *accounted, v *View) int64 {
	tokens, complete := v.catalog.ListingTokens()
	if !complete {
		if fresh := v.catalog.CountTokens(ctx); len(fresh) > 0 {
			a.counts(ctx, fresh)
		}
		tokens = v.catalog.ListingCost()
	}
	by := max(0, int64(tokens)-s.full)
	s.full += by
	return by
}

// definitionsIn is the text of an answer that carries definitions: of a batch of
// the proxy tool without the results of called tools.
func definitionsIn(answer json.RawMessage) (out []byte) {
	for block := range rawjson.Elements(rawjson.Member(answer, "content")) {
		text := rawjson.Text(rawjson.Member(block, "text"))
		if resource := rawjson.Member(block, "resource"); resource != nil {
			text = rawjson.Text(rawjson.Member(resource, "text"))
		}
		if proxied(block) != proxytool.ActionBatch {
			out = append(out, text...)
			continue
		}
		for result := range rawjson.Elements(json.RawMessage(text)) {
			for one := range rawjson.Elements(rawjson.Member(result, "content")) { // of what is no call
				if action := proxied(one); action == proxytool.ActionList || action == proxytool.ActionInfo {
					out = append(out, result...)
				}
			}
		}
	}
	return out
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
		of := sums[to]
		sums[to] = store.Savings{
			View: to.view, Client: to.client,
			Sessions: of.Sessions + sum.Sessions, Retrievals: of.Retrievals + sum.Retrievals,
			Full: of.Full + sum.Full, Listed: of.Listed + sum.Listed, Answers: of.Answers + sum.Answers,
		}
	}
}

// Savings is what listing every tool would have cost the models of the clients
// since Open, and what they were sent instead, in tokens, by view and client. Day
// is empty. What came since it was counted last is counted first, which under load
// takes up to 0.4 s.
func (p *Proxy) Savings(ctx context.Context) []store.Savings { return p.savings.totals(ctx) }
