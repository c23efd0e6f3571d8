package rawjson

import "slices"

// Unique returns valid JSON without the members that another of their name follows
// in the same object, at any depth: JSON that everybody reads the same way. It is
// value itself if there are none. All other bytes stay as they were.
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
	open    []scope  // what is open at this place, the innermost last
	removed [][2]int // parts of the text to leave out
}

// scope is an object or array that is open.
type scope struct {
	isObject, keyNext bool
	starts            []int          // of the members so far: where their names begin
	last              map[string]int // by name: the member in starts
	superseded        []int          // members in starts that another follows
}

// text takes a string, which may be the name of a member.
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

// end ends the innermost scope. What is removed of it reaches to the next member:
// there is always one.
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

// rest is the text without what is removed. Parts that are removed may lie in each
// other.
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
