package rawjson

import "slices"

// Unique removes, at any depth, members that another of their name follows in the same object, so that
// every reader reads the same. It returns value itself without such members. All other bytes stay.
func Unique(value []byte) []byte {
	s := scan{json: value}
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			end := SkipString(value, i)
			s.text(i, end)
			i = end - 1
		case '{', '[':
			s.open = append(s.open, scope{isObject: value[i] == '{', keyNext: true})
		case ',':
			if n := len(s.open); n > 0 {
				s.open[n-1].keyNext = true
			}
		case '}', ']':
			s.end()
		}
	}
	return s.rest()
}

// scan is one pass over a JSON text.
type scan struct {
	json    []byte
	open    []scope  // open objects and arrays, the innermost last
	removed [][2]int // parts of the text to leave out
}

// scope is an open object or array.
type scope struct {
	isObject, keyNext bool
	starts            []int          // offsets of the members' names so far
	last              map[string]int // by name: the member in starts
	superseded        []int          // members in starts that another follows
}

// text reads a string, maybe the name of a member.
func (s *scan) text(from, to int) {
	if len(s.open) == 0 || to-from < 2 || s.json[to-1] != '"' {
		return
	}
	o := &s.open[len(s.open)-1]
	if !o.isObject || !o.keyNext {
		return
	}
	o.keyNext = false
	name := member{key: from, keyEnd: to}.name(s.json)
	if before, twice := o.last[name]; twice {
		o.superseded = append(o.superseded, before)
	}
	if o.last == nil {
		o.last = map[string]int{}
	}
	o.last[name] = len(o.starts)
	o.starts = append(o.starts, from)
}

// end ends the innermost scope. A removed member ends where the next begins: there is always one.
func (s *scan) end() {
	if len(s.open) == 0 {
		return
	}
	o := s.open[len(s.open)-1]
	s.open = s.open[:len(s.open)-1]
	for _, i := range o.superseded {
		s.removed = append(s.removed, [2]int{o.starts[i], o.starts[i+1]})
	}
}

// rest is the text without the removed parts, which may be nested.
func (s *scan) rest() []byte {
	if len(s.removed) == 0 {
		return s.json
	}
	slices.SortFunc(s.removed, func(a, b [2]int) int { return a[0] - b[0] })
	out := make([]byte, 0, len(s.json))
	at := 0
	for _, part := range s.removed {
		if part[0] >= at {
			out = append(out, s.json[at:part[0]]...)
		}
		at = max(at, part[1])
	}
	return append(out, s.json[at:]...)
}
