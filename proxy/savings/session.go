package savings

import (
	"context"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
)

// cacheLife is how long a provider keeps a prefix that nobody reads. After such a
// pause a conversation is paid anew, or it is another one.
const cacheLife = 5 * time.Minute

// bytesOfToken is what a token of a called tool's result is taken to have: counting
// it exactly takes 0.1 s a megabyte.
const bytesOfToken = 4

// session is what the model of one client reads. A step reads the list, then
// everything that the session was answered, in its order.
type session struct {
	view  string
	list  []*tool.Tool // what it was listed last
	seen  time.Time    // when the last call began or was answered
	open  int          // calls that are not answered
	used  bool         // one of those since the last step is of the kind Use
	began bool         // a step was made since the start, or the last pause

	read   []*tool.Tool // what the last step read of the list
	tokens int64        // of list
	kept   int64        // of what list begins with as read does; tokens when they are the same
	added  bool         // all of read is kept
	sent   prefix       // answers and results
	all    prefix       // the results alone, which are sent with every tool listed, too
	full   int64        // what listing every tool costs, at its most
	paid   int64        // of full, what a step has read since the start, or the last pause
}

// prefix is what steps read, in tokens.
type prefix struct {
	before int64 // read by a step
	fresh  int64 // answered since
}

// read returns what the next step reads again.
func (p *prefix) read() int64 {
	before := p.before
	p.before, p.fresh = p.before+p.fresh, 0
	return before
}

// lists takes a list.
func (s *session) lists(ctx context.Context, n note) {
	s.list = n.list
	s.tokens, s.kept = 0, 0
	same := true
	for i, t := range n.list {
		cost := int64(n.view.Tokens(t))
		s.tokens += cost
		if i < len(s.read) {
			same = same && t.Name == s.read[i].Name && t.Def.Hash == s.read[i].Def.Hash
			if same {
				s.kept += cost
			}
		}
	}
	s.added = same && len(n.list) >= len(s.read)
	s.grow(ctx, n.view)
}

// grow notes what listing every tool costs now: servers may come later.
func (s *session) grow(ctx context.Context, v View) {
	s.full = max(s.full, int64(v.ListingCost(ctx)))
}

// call takes the start of a call. Calls that overlap are of one step.
func (s *session) call(ctx context.Context, n note) (sum store.Savings) {
	s.grow(ctx, n.view)
	if s.open == 0 {
		if s.began && n.at.Sub(s.seen) > cacheLife {
			sum = s.step()
			s.began, s.sent, s.all, s.paid = false, prefix{}, prefix{}, 0
		}
		sum = s.step().Plus(sum)
	}
	s.open++
	s.seen = n.at
	s.used = s.used || n.kind == Use
	if n.kind == Search {
		sum.Retrievals++
	}
	return sum
}

// answer takes the answer to a call.
func (s *session) answer(n note) (sum store.Savings) {
	s.open = max(0, s.open-1)
	s.seen = n.at
	tokens := int64(n.size / bytesOfToken)
	if n.answer != nil {
		text := textOf(n.answer)
		tokens = int64(len(text) / bytesOfToken)
		if n.kind != Use {
			tokens = int64(tool.CountTokens(text))
		}
	}
	s.sent.fresh += tokens
	if n.kind == Use {
		s.all.fresh += tokens
		sum.Results = tokens
	} else {
		sum.Answers = tokens
	}
	return sum
}

// step counts one model step: the first, or the one that reads the answers since the
// last. With every tool listed, a step that only reads what was found is not made.
func (s *session) step() store.Savings {
	sum := store.Savings{Steps: 1}
	sent := s.sent.read()
	switch {
	case !s.began:
		sum.Starts, sum.Listed = 1, s.tokens
	case s.kept == s.tokens && s.added:
		sum.Cached = s.tokens + sent
	default:
		sum.Cached, sum.Relisted, sum.Reread = s.kept, s.tokens-s.kept, sent
		sum.Appended = 1
		if !s.added {
			sum.Appended, sum.Changed = 0, 1
		}
	}
	s.read, s.kept, s.added = s.list, s.tokens, true
	if !s.began || s.used {
		sum.AllSteps, sum.AllListed, sum.AllCached = 1, s.full-s.paid, s.paid+s.all.read()
		s.paid = s.full
	}
	s.began, s.used = true, false
	return sum
}

// textOf is the text that a model reads of an answer: of its content blocks, embedded
// resources too, else its structured content.
func textOf(answer []byte) (text []byte) {
	for block := range rawjson.Elements(rawjson.Member(answer, "content")) {
		if resource := rawjson.Member(block, "resource"); resource != nil {
			block = resource
		}
		text = append(text, rawjson.Text(rawjson.Member(block, "text"))...)
	}
	if text == nil {
		return rawjson.Member(answer, "structuredContent")
	}
	return text
}
