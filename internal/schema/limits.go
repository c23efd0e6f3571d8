package schema

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
)

// Bounds of a schema; larger schemas are not compiled.
const (
	maxSchemaBytes  = 512 << 10
	maxSchemaDepth  = 100     // of its JSON
	maxSchemaValues = 10_000  // values in its JSON, because compiling compares each with each
	maxPattern      = 5_000   // instructions of one regular expression
	maxPatterns     = 50_000  // instructions of all regular expressions
	maxRefWork      = 150_000 // values below the targets of references, and a tenth of all for each
)

// Bounds of a value; larger values are not checked.
const (
	maxValueDepth = 500
	maxValues     = 100_000 // values in its JSON
)

// Bounds of numbers in schemas and values: numbers are compared as fractions, in time quadratic in
// their length.
const (
	maxDigits   = 1_000
	maxExponent = 1_000
)

// extent is the size of a JSON text.
type extent struct {
	values, depth int
	number        string // the first number past the bounds, cut; "" for none
}

// extentOf measures valid JSON in one pass.
func extentOf(raw []byte) (e extent) {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '"':
			i = endOfString(raw, i)
		case '{', '[':
			e.values++
			depth++
			e.depth = max(e.depth, depth)
		case '}', ']':
			depth--
		case ',': // one more member or element
			e.values++
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i
			for end < len(raw) && strings.IndexByte("0123456789+-.eE", raw[end]) >= 0 {
				end++
			}
			if e.number == "" && beyond(raw[i:end]) {
				e.number = fmt.Sprintf("%.20s", raw[i:end])
			}
			i = end - 1
		}
	}
	return e
}

// endOfString is the offset of the quote that ends the string at i.
func endOfString(raw []byte, i int) int {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i
}

// beyond reports whether a number is past the bounds.
func beyond(number []byte) bool {
	if len(number) > maxDigits {
		return true
	}
	_, exponent, found := strings.Cut(strings.ToLower(string(number)), "e")
	if !found {
		return false
	}
	n, err := strconv.Atoi(exponent)
	return err != nil || n > maxExponent || n < -maxExponent
}

// survey walks a schema before it is compiled, and adds up the cost of compiling beside its size.
type survey struct {
	root     any
	values   int             // in root
	patterns int             // instructions
	refs     map[string]bool // seen references
	refWork  int             // values below their targets
	ids      int             // members named $id
	outside  bool            // a reference leads to another document
}

func (s *survey) walk(value any) error {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			if err := s.walk(element); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, member := range value {
			if err := s.keyword(key, member); err != nil {
				return err
			}
			if err := s.walk(member); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *survey) keyword(key string, value any) error {
	text, isText := value.(string)
	switch {
	case key == "$id" && isText:
		s.ids++
	case key == "pattern" && text != "":
		return s.pattern(text)
	case key == "patternProperties":
		named, _ := value.(map[string]any)
		for pattern := range named {
			if err := s.pattern(pattern); err != nil {
				return err
			}
		}
	case (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef") && isText && !s.refs[text]:
		s.refs[text] = true
		s.outside = s.outside || !strings.HasPrefix(text, "#")
		if s.refWork += s.below(text); s.refWork > maxRefWork {
			return unusable("too many references to large parts of it")
		}
	}
	return nil
}

func (s *survey) pattern(text string) error {
	n := instructions(text)
	if s.patterns += n; n > maxPattern || s.patterns > maxPatterns {
		return unusable("its regular expressions are too large")
	}
	return nil
}

// single reports whether dynamic references lead where plain ones do: within one resource, the root's.
func (s *survey) single() bool {
	object, _ := s.root.(map[string]any)
	_, own := object["$id"]
	return !s.outside && (s.ids == 0 || s.ids == 1 && own)
}

// below estimates the values that the library visits for a reference: the values below its target, and
// a list of all. Definitions are visited once for all references.
func (s *survey) below(ref string) int {
	tokens := strings.Split(ref, "/")
	if ref == "#" || tokens[0] == "#" && len(tokens) == 3 && (tokens[1] == "$defs" || tokens[1] == "definitions") {
		return 1
	}
	if tokens[0] != "#" || strings.Contains(ref, "%") {
		return s.values
	}
	target, _ := At(s.root, ref[1:])
	return count(target) + s.values/10
}

// count counts the values in a value, including itself.
func count(value any) int {
	n := 1
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			n += count(element)
		}
	case map[string]any:
		for _, member := range value {
			n += count(member)
		}
	}
	return n
}

// instructions estimates the compiled size of a regular expression. An invalid one has the size of its
// text.
func instructions(text string) int {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return len(text)
	}
	return size(parsed)
}

func size(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += size(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxPatterns+1)
}
