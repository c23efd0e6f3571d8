package register

import "sync"

// direct is whether a client is listed every tool: decided with its first list and
// kept, because its model would miss what another list has not.
type direct struct {
	mu      sync.Mutex // guards what follows; held over Served.Direct
	decided bool
	mode    string // in which it was decided
	is      bool
}

// in decides for what is served.
func (d *direct) in(v *Served) bool {
	if v.Direct == nil || v.gated() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if first := !d.decided || d.mode != v.mode(); first || d.is {
		d.decided, d.mode, d.is = true, v.mode(), v.Direct(!first)
	}
	return d.is
}

// was reports whether the client was listed every tool, if that was in the same mode.
func (d *direct) was(v *Served) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.is && d.mode == v.mode() && v.Direct != nil && !v.gated()
}

// sees reports whether the client sees a change: of what those are listed that search,
// or of all tools. One that was not listed yet may have been told of either.
func (d *direct) sees(v *Served, searched, all bool) bool {
	d.mu.Lock()
	decided := d.decided
	d.mu.Unlock()
	if d.was(v) {
		return all
	}
	return searched || all && !decided
}
