package register

import "sync"

// direct says whether a client is listed every tool. The first list decides, and the decision stays: a
// model must not lose tools that it has seen. A client that searches because servers were starting is
// listed every tool later, if it has called nothing meanwhile.
type direct struct {
	mu      sync.Mutex // guards the fields below; held over Served.Direct
	decided bool
	mode    string // the mode of the decision
	is      bool
	open    bool // decided to search while servers were starting
}

// in decides for v, or repeats the decision.
func (d *direct) in(v *Served) bool {
	if v.Direct == nil || v.gated() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if first := !d.decided || d.mode != v.mode() || d.open; first || d.is {
		d.decided, d.mode, d.is = true, v.mode(), v.Direct(!first)
		d.open = !d.is && v.Unsettled
	}
	return d.is
}

// keep keeps the decision, because the client has called something.
func (d *direct) keep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = false
}

// turns reports whether the next list shows every tool, because all servers have started.
func (d *direct) turns(v *Served) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open && !v.Unsettled && v.Direct != nil && !v.gated() && v.Direct(false)
}

// was reports whether the last decision was for the same mode and lists every tool.
func (d *direct) was(v *Served) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.is && d.mode == v.mode() && v.Direct != nil && !v.gated()
}

// sees reports whether the client sees a change of the list of searching clients (searched) or of the
// list of all tools (all). An undecided client may have been told of either list.
func (d *direct) sees(v *Served, searched, all bool) bool {
	if d.turns(v) {
		return true
	}
	d.mu.Lock()
	decided := d.decided
	d.mu.Unlock()
	if d.was(v) {
		return all
	}
	return searched || all && !decided
}
