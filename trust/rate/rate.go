// Package rate owns the limits of calls per minute and of concurrent calls: by principal, server, tool,
// or together. It does not know what a call is, and never waits.
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

// Rule limits the calls that it matches.
type Rule struct {
	Name string // name in metrics
	// Server and Tool select calls; "" selects all. Tool is a glob over "server.name".
	Server, Tool             string
	Principals, Servers, Ids bool // own counts for each
	PerMinute                int  // calls a minute, and the size of a burst; 0: no bound
	Concurrency              int  // concurrent calls; 0: no bound
}

// Call has the facts about a call that rules match.
type Call struct{ Principal, Server, ID string }

// maxCounted bounds the counts of one rule. The count with the oldest call is dropped first.
const maxCounted = 10_000

// Limits are rules with their counts. Nil limits nothing. Its methods are safe for concurrent use.
type Limits struct {
	rules []*counting
}

// counting is a rule with its counts.
type counting struct {
	Rule
	limit *limit.Limit // for metrics

	mu     sync.Mutex // guards the fields below; held for look-ups only
	among  int        // number of replicas that share the bounds, 0 for one
	counts map[Call]*list.Element
	recent *list.List // of *count, the most recent first
}

// count has the calls of one principal, server or tool.
type count struct {
	of      Call
	bucket  *rate.Limiter // nil: no bound
	running int
}

// New returns the limits of rules, nil for none. A rule that is also in before keeps its counts.
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

// Share divides the bounds among replicas with the same rules; each replica gets at least one call. Call it again
// after New. It must not run beside New or itself.
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
			bucket.SetBurstAt(now, r.portion(r.PerMinute))
			bucket.SetLimitAt(now, rate.Limit(float64(r.PerMinute)/float64(60*max(among, 1))))
		}
	}
}

// portion is this process's share of a bound; the caller holds the lock.
func (r *counting) portion(bound int) int {
	among := max(r.among, 1)
	return (bound + among - 1) / among
}

// Limits returns the limits for metrics, one for each rule.
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
	Wait time.Duration // 0: until a running call ends
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

// String describes the rule.
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

// Begin counts a call, and returns a function for its end. After an *Error no rule has counted it.
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
	// path.Match does not let "*" match "/", which is no separator here.
	ok, err := path.Match(strings.ReplaceAll(r.Tool, "/", "\x00"), strings.ReplaceAll(c.ID, "/", "\x00"))
	return err == nil && ok
}

// begin counts a call under one rule. cancel undoes the count; done ends the call.
func (r *counting) begin(c Call, now time.Time) (cancel, done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.count(c)
	if r.Concurrency > 0 && one.running >= r.portion(r.Concurrency) {
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

// count returns the count for a call; the caller holds the lock.
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
		one.bucket = rate.NewLimiter(rate.Limit(float64(r.PerMinute)/float64(60*max(r.among, 1))), r.portion(r.PerMinute))
	}
	r.counts[key] = r.recent.PushFront(one)
	return one
}

// forget drops the count with the oldest call, among counts without a running call. The caller holds the lock.
func (r *counting) forget() {
	for at := r.recent.Back(); at != nil; at = at.Prev() {
		if one := at.Value.(*count); one.running == 0 {
			delete(r.counts, one.of)
			r.recent.Remove(at)
			return
		}
	}
}
