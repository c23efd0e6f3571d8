package savings

import (
	"context"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
)

// cacheLife is how long a provider keeps an unread prefix. After such a pause a conversation is paid
// anew, or is another one.
const cacheLife = 5 * time.Minute

// bytesOfToken is the assumed size of a token in a result: exact counting takes 0.1 s a megabyte.
const bytesOfToken = 4

// session is the tokens that one client's model reads. A step reads the list, then all earlier answers
// of the session, in their order.
type session struct {
	view  string
	list  []*tool.Tool // the last one
	seen  time.Time    // the last call's begin or answer
	open  int          // calls without an answer
	used  bool         // a call since the last step has the kind Use
	began bool         // a step was made since the start, or the last pause

	read   []*tool.Tool // the list of the last step
	tokens int64        // of list
	kept   int64        // the tokens of the beginning that list shares with read
	added  bool         // list begins with all of read
	sent   prefix       // answers and results
	all    prefix       // the results alone, which are sent with every tool listed, too
	full   int64        // the greatest cost of listing every tool
	paid   int64        // of full, the part that steps have read since the start, or the last pause
}

// prefix has the tokens that steps read.
type prefix struct {
	before int64 // read by a step
	fresh  int64 // answered since
}

// read returns the tokens that the next step reads again.
func (p *prefix) read() int64 {
	before := p.before
	p.before, p.fresh = p.before+p.fresh, 0
	return before
}

// lists counts a list.
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

// grow notes the present cost of listing every tool: servers may come later.
func (s *session) grow(ctx context.Context, v View) {
	s.full = max(s.full, int64(v.ListingCost(ctx)))
}

// call counts the start of a call. Overlapping calls belong to one step.
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

// answer counts the answer to a call.
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

// step counts one model step: the first, or the one that reads the latest answers. With every tool
// listed, a step that only reads found tools does not exist.
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

// textOf is the part of an answer that a model reads: the text of its content blocks and embedded
// resources, else its structured content.
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
