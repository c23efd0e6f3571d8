// Package rate owns how often, and how many at once, something may be called: by each
// principal, at each server, each tool, or by all together. It does not know what a call
// is, and never waits.
package rate

import (
	"container/list"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"toolfinch/internal/limit"
)

// Rule bounds the calls that it is about. Those are counted apart for each principal,
// server and tool, as far as the rule says so, and else together.
type Rule struct {
	Name string // of metrics
	// Server is whose calls it is about, and Tool a glob over "server.name"; "" for all.
	Server, Tool             string
	Principals, Servers, Ids bool // counted apart for each
	PerMinute                int  // calls, so many of them at once; 0: no bound
	Concurrency              int  // calls at one time; 0: no bound
}

// Call is what a rule may be about.
type Call struct{ Principal, Server, ID string }

// maxCounted is how many principals, servers or tools one rule counts apart: the one that
// called longest ago is forgotten first.
const maxCounted = 10_000

// Limits are rules and what was called under them. Nil bounds nothing. Its methods are
// safe for concurrent use.
type Limits struct {
	rules []*counting
}

// counting is one rule and its counts.
type counting struct {
	Rule
	limit *limit.Limit // of metrics

	mu     sync.Mutex // guards what follows; held for look-ups only
	among  int        // replicas that share the bounds, 0 for one
	counts map[Call]*list.Element
	recent *list.List // of *count, the last used first
}

// count is what was called by one principal, at one server, and so on.
type count struct {
	of      Call
	bucket  *rate.Limiter // nil: no bound
	running int
}

// New returns the limits of rules, nil for none. A rule that was among those before goes
// on counting.
func New(rules []Rule, before *Limits) *Limits {
	if len(rules) == 0 {
		return nil
	}
	all := &Limits{}
	for _, rule := range rules {
		one := before.of(rule)
		if one == nil {
			one = &counting{
				Rule: rule, counts: map[Call]*list.Element{}, recent: list.New(),
				limit: limit.New(rule.Name, int64(max(rule.PerMinute, rule.Concurrency)), "calls", "wait"),
			}
		}
		all.rules = append(all.rules, one)
	}
	return all
}

func (l *Limits) of(rule Rule) *counting {
	if l == nil {
		return nil
	}
	for _, one := range l.rules {
		if one.Rule == rule {
			return one
		}
	}
	return nil
}

// Share gives this process its part of what the rules allow, where so many processes have
// the same rules: at least one call of each. New shares nothing. It must not run beside New or itself.
func (l *Limits) Share(among int, now time.Time) {
	if l == nil {
		return
	}
	for _, one := range l.rules {
		one.share(among, now)
	}
}

func (r *counting) share(among int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.among == among {
		return
	}
	r.among = among
	for at := r.recent.Front(); at != nil; at = at.Next() {
		if bucket := at.Value.(*count).bucket; bucket != nil {
			bucket.SetBurstAt(now, r.part(r.PerMinute))
			bucket.SetLimitAt(now, rate.Limit(float64(r.PerMinute)/float64(60*max(among, 1))))
		}
	}
}

// part is the part of a bound that this process has; the caller holds the lock.
func (r *counting) part(bound int) int {
	among := max(r.among, 1)
	return (bound + among - 1) / among
}

// Limits are those of metrics, one for each rule.
func (l *Limits) Limits() (all []*limit.Limit) {
	if l != nil {
		for _, one := range l.rules {
			all = append(all, one.limit)
		}
	}
	return all
}

// Error says which rule refused a call, and how long to wait.
type Error struct {
	Rule Rule
	Wait time.Duration // 0: until one of the calls that run has ended
}

func (e *Error) Error() string {
	var text strings.Builder
	if e.Wait > 0 {
		fmt.Fprintf(&text, "rate limit: %d calls a minute", e.Rule.PerMinute)
	} else {
		fmt.Fprintf(&text, "rate limit: %d calls at once", e.Rule.Concurrency)
	}
	text.WriteString(e.Rule.scope())
	if e.Wait > 0 {
		fmt.Fprintf(&text, "; wait %d s and call again", e.Seconds())
	} else {
		text.WriteString("; call again when one of them has ended")
	}
	return text.String()
}

// Seconds is the wait in whole seconds, at least 1.
func (e *Error) Seconds() int { return max(1, int((e.Wait+time.Second-1)/time.Second)) }

// String says what the rule allows.
func (r Rule) String() string {
	var bounds []string
	if r.PerMinute > 0 {
		bounds = append(bounds, fmt.Sprintf("%d calls a minute", r.PerMinute))
	}
	if r.Concurrency > 0 {
		bounds = append(bounds, fmt.Sprintf("%d at once", r.Concurrency))
	}
	return strings.Join(bounds, ", ") + r.scope()
}

func (r Rule) scope() string {
	text := ""
	switch {
	case r.Tool != "":
		text = " of " + r.Tool
	case r.Server != "":
		text = " at " + r.Server
	}
	var each []string
	for _, apart := range []struct {
		is   bool
		what string
	}{{r.Principals, "principal"}, {r.Servers, "server"}, {r.Ids, "tool"}} {
		if apart.is {
			each = append(each, apart.what)
		}
	}
	if len(each) > 0 {
		text += " for each " + strings.Join(each, " and ")
	}
	return text
}

// Begin counts a call that begins, and returns what says that it has ended. The error is
// an *Error; then no rule has counted it.
func (l *Limits) Begin(c Call, now time.Time) (end func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	var undo, ends []func()
	for _, one := range l.rules {
		if !one.about(c) {
			continue
		}
		cancel, done, err := one.begin(c, now)
		if err != nil {
			for _, cancel := range undo {
				cancel()
			}
			return nil, err
		}
		undo, ends = append(undo, cancel), append(ends, done)
	}
	return func() {
		for _, done := range ends {
			done()
		}
	}, nil
}

func (r *counting) about(c Call) bool {
	if r.Server != "" && r.Server != c.Server {
		return false
	}
	if r.Tool == "" {
		return true
	}
	// path.Match keeps "*" from crossing "/", which is no separator here.
	ok, err := path.Match(strings.ReplaceAll(r.Tool, "/", "\x00"), strings.ReplaceAll(c.ID, "/", "\x00"))
	return err == nil && ok
}

// begin counts a call under one rule. cancel undoes that, done says that it has ended.
func (r *counting) begin(c Call, now time.Time) (cancel, done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.count(c)
	if r.Concurrency > 0 && one.running >= r.part(r.Concurrency) {
		_ = r.limit.Refuse()
		return nil, nil, &Error{Rule: r.Rule}
	}
	var taken *rate.Reservation
	if one.bucket != nil {
		taken = one.bucket.ReserveN(now, 1)
		if wait := taken.DelayFrom(now); wait > 0 {
			taken.CancelAt(now)
			_ = r.limit.Refuse()
			return nil, nil, &Error{r.Rule, wait}
		}
	}
	one.running++
	r.limit.Count(1)
	done = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		one.running--
		r.limit.Release(1)
	}
	return func() {
		if taken != nil {
			taken.CancelAt(now)
		}
		done()
	}, done, nil
}

// count is the count of a call; the caller holds the lock.
func (r *counting) count(c Call) *count {
	var key Call
	if r.Principals {
		key.Principal = c.Principal
	}
	if r.Servers {
		key.Server = c.Server
	}
	if r.Ids {
		key.ID = c.ID
	}
	if known := r.counts[key]; known != nil {
		r.recent.MoveToFront(known)
		return known.Value.(*count)
	}
	if r.recent.Len() >= maxCounted {
		r.forget()
	}
	one := &count{of: key}
	if r.PerMinute > 0 {
		one.bucket = rate.NewLimiter(rate.Limit(float64(r.PerMinute)/float64(60*max(r.among, 1))), r.part(r.PerMinute))
	}
	r.counts[key] = r.recent.PushFront(one)
	return one
}

// forget forgets the count that was used longest ago, and under which nothing runs. The
// caller holds the lock.
func (r *counting) forget() {
	for at := r.recent.Back(); at != nil; at = at.Prev() {
		if one := at.Value.(*count); one.running == 0 {
			delete(r.counts, one.of)
			r.recent.Remove(at)
			return
		}
	}
}
