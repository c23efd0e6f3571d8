package script

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// operators are the builtins that a rewritten file calls instead of operators.
var operators = func() starlark.StringDict {
	all := starlark.StringDict{"$none": starlark.None}
	define := func(name string, do func(r *run, args starlark.Tuple) (starlark.Value, error)) {
		all[name] = starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
			return do(runOf(thread), args)
		})
	}
	for op := syntax.PLUS; op <= syntax.GTGT; op++ {
		define("$"+op.String(), func(r *run, args starlark.Tuple) (starlark.Value, error) { return r.binary(op, args[0], args[1]) })
	}
	for _, op := range []syntax.Token{syntax.IN, syntax.NOT_IN} {
		define("$"+op.String(), func(r *run, args starlark.Tuple) (starlark.Value, error) { return r.in(op, args[0], args[1]) })
	}
	for op := syntax.EQL; op <= syntax.NEQ; op++ {
		define("$"+op.String(), func(r *run, args starlark.Tuple) (starlark.Value, error) { return r.compare(op, args[0], args[1]) })
	}
	for _, op := range []syntax.Token{syntax.LT, syntax.GT, syntax.LE, syntax.GE} {
		define("$"+op.String(), func(r *run, args starlark.Tuple) (starlark.Value, error) { return r.compare(op, args[0], args[1]) })
	}
	for _, op := range []syntax.Token{syntax.PLUS, syntax.MINUS, syntax.TILDE} {
		define("$unary"+op.String(), func(r *run, args starlark.Tuple) (starlark.Value, error) {
			if n, ok := args[0].(starlark.Int); ok {
				if err := r.alloc(int64(bitLen(n) / 8)); err != nil {
					return nil, err
				}
			}
			return starlark.Unary(op, args[0])
		})
	}
	define("$late", func(r *run, args starlark.Tuple) (starlark.Value, error) { return &late{r: r, right: args[0]}, nil })
	define("$attr", func(r *run, args starlark.Tuple) (starlark.Value, error) {
		return attr(args[0], string(args[1].(starlark.String)))
	})
	define("$slice", func(r *run, args starlark.Tuple) (starlark.Value, error) {
		return r.slice(args[0], args[1], args[2], args[3])
	})
	define("$key", func(r *run, args starlark.Tuple) (starlark.Value, error) { return args[0], r.weighKey(args[0]) })
	define("$put", func(r *run, args starlark.Tuple) (starlark.Value, error) {
		if err := r.alloc(48); err != nil { // between a new entry and an old one
			return nil, err
		}
		return args[0], r.put(args[0])
	})
	define("$item", func(r *run, args starlark.Tuple) (starlark.Value, error) { return args[0], r.alloc(4 * sizeSlot) })
	define("$made", func(r *run, args starlark.Tuple) (starlark.Value, error) {
		size := 128
		switch v := args[0].(type) {
		case *starlark.Dict:
			size = sizeDict + max(0, v.Len()-8)*sizeEntry
		case *starlark.List:
			size = 64 + v.Len()*sizeSlot
		case starlark.Tuple:
			size = 24 + len(v)*sizeSlot
		case *starlark.Function:
			size += (v.NumFreeVars() + v.NumParams()) * sizeSlot
		}
		return args[0], r.alloc(int64(size))
	})
	define("$*args", func(r *run, args starlark.Tuple) (starlark.Value, error) {
		iterable, ok := args[0].(starlark.Iterable)
		if !ok {
			return args[0], nil // the interpreter says it
		}
		return r.elements(iterable, -1)
	})
	define("$**args", func(r *run, args starlark.Tuple) (starlark.Value, error) {
		if mapping, ok := args[0].(*starlark.Dict); ok {
			if err := r.allocN(mapping.Len(), 2*sizePair+sizeEntry); err != nil {
				return nil, err
			}
			return mapping, r.putAll(mapping)
		}
		return args[0], nil
	})
	return all
}()

// late is the right operand of an augmented assignment. The interpreter, which
// finds that no value it knows goes with it, asks it to do the operation: after
// the left side was evaluated, once.
type late struct {
	r     *run
	right starlark.Value
}

func (l *late) String() string        { return "late" }
func (l *late) Type() string          { return l.right.Type() }
func (l *late) Freeze()               {}
func (l *late) Truth() starlark.Bool  { return true }
func (l *late) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: %s", l.Type()) }

func (l *late) Binary(op syntax.Token, left starlark.Value, side starlark.Side) (starlark.Value, error) {
	switch left := left.(type) {
	case *starlark.List:
		if right, ok := l.right.(starlark.Iterable); ok && op == syntax.PLUS { // in place
			_, err := l.r.method(left, "extend", starlark.Tuple{right})
			return left, err
		}
	case *starlark.Dict:
		if right, ok := l.right.(*starlark.Dict); ok && op == syntax.PIPE { // in place
			_, err := l.r.method(left, "update", starlark.Tuple{right})
			return left, err
		}
	}
	return l.r.binary(op, left, l.right)
}

// method calls a metered method.
func (r *run) method(receiver starlark.Value, name string, args starlark.Tuple) (starlark.Value, error) {
	bound, err := attr(receiver, name)
	if err != nil {
		return nil, err
	}
	return bound.(*starlark.Builtin).CallInternal(r.thread, args, nil)
}

func bitLen(n starlark.Int) int {
	if small, ok := n.Int64(); ok {
		if small < 0 {
			small = -small
		}
		return bits.Len64(uint64(small))
	}
	return n.BigInt().BitLen()
}

// binary applies an operator once it is known what its result will cost.
func (r *run) binary(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	if err := r.allocBinary(op, x, y); err != nil {
		return nil, err
	}
	return starlark.Binary(op, x, y)
}

func (r *run) allocBinary(op syntax.Token, x, y starlark.Value) error {
	switch x := x.(type) {
	case starlark.Int:
		switch y := y.(type) {
		case starlark.Int:
			return r.allocInt(op, x, y)
		case starlark.String, starlark.Bytes, *starlark.List, starlark.Tuple:
			if op == syntax.STAR {
				return r.allocRepeat(y, x)
			}
		}
	case starlark.String:
		switch op {
		case syntax.PLUS:
			if y, ok := y.(starlark.String); ok {
				return r.alloc(int64(sizeText + len(x) + len(y)))
			}
		case syntax.STAR:
			return r.allocRepeat(x, y)
		case syntax.PERCENT:
			return r.allocPercent(string(x), y)
		}
	case starlark.Bytes:
		if y, ok := y.(starlark.Bytes); ok && op == syntax.PLUS {
			return r.alloc(int64(sizeText + len(x) + len(y)))
		}
		return r.allocRepeat(x, y)
	case *starlark.List, starlark.Tuple:
		if op == syntax.STAR {
			return r.allocRepeat(x, y)
		}
		return r.allocN(starlark.Len(x)+max(0, starlark.Len(y)), sizeSlot)
	case *starlark.Dict, *starlark.Set:
		if y.Type() != x.Type() {
			return nil
		}
		for _, keys := range []starlark.Value{x, y} {
			if err := r.putAll(keys.(starlark.Iterable)); err != nil {
				return err
			}
		}
		return r.alloc(sizeDict + int64(starlark.Len(x)+starlark.Len(y))*sizeEntry)
	case *starlarkstruct.Struct:
		if y, ok := y.(*starlarkstruct.Struct); ok {
			return r.alloc(int64(x.Len()+y.Len()) * sizeEntry)
		}
	}
	return nil
}

func (r *run) allocInt(op syntax.Token, x, y starlark.Int) error {
	n, m := bitLen(x), bitLen(y)
	size := max(n, m) + 1
	switch op {
	case syntax.STAR:
		size = n + m
	case syntax.LTLT:
		size = n + 512 // the interpreter refuses more
	}
	if size <= 64 {
		return nil
	}
	if size > maxIntBits {
		return limitError("%d bits of an integer", maxIntBits)
	}
	if op == syntax.STAR || op == syntax.SLASHSLASH || op == syntax.PERCENT {
		if err := r.workN(n/64+1, m/64+1); err != nil {
			return err
		}
	}
	return r.alloc(int64(48 + size/8))
}

func (r *run) allocRepeat(v, times starlark.Value) error {
	count, ok := times.(starlark.Int)
	if !ok || count.Sign() <= 0 {
		return nil
	}
	size := sizeSlot
	switch v := v.(type) {
	case starlark.String, starlark.Bytes:
		size = starlark.Len(v)
	default:
		size *= starlark.Len(v)
	}
	n, ok := count.Int64()
	if !ok {
		n = 1 << 40
	}
	return r.allocN(int(min(n, 1<<40)), size)
}

// allocFormat is called before values go into a format, whose placeholders begin
// with mark: all of them could be the largest value.
func (r *run) allocFormat(format, mark string, values ...starlark.Value) error {
	largest := int64(0)
	quoted := strings.Contains(format, "%r") || strings.Contains(format, "!r")
	for _, v := range values {
		measured := v
		if quoted {
			measured = starlark.Tuple{v}
		}
		n, err := r.textSize(measured)
		if err != nil {
			return err
		}
		if _, float := v.(starlark.Float); float {
			n = 330 // %f of a large one
		}
		largest = max(largest, n+2)
	}
	if err := r.alloc(int64(sizeText+2*len(format)) + 2*largest); err != nil { // growing copies
		return err
	}
	return r.allocN(strings.Count(format, mark), int(largest))
}

// allocPercent is called before format % operand.
func (r *run) allocPercent(format string, operand starlark.Value) error {
	values := []starlark.Value{operand}
	switch operand := operand.(type) {
	case starlark.Tuple:
		values = operand
	case *starlark.Dict:
		if strings.Contains(format, "%(") {
			if err := r.allocN(operand.Len(), sizePair); err != nil {
				return err
			}
			for _, value := range operand.Entries() {
				values = append(values, value)
			}
			values = values[1:]
			if strings.Count(format, "%(") < strings.Count(format, "%") {
				values = append(values, operand)
			}
		}
	}
	return r.allocFormat(format, "%", values...)
}

// compare is x op y for an operator of order or equality.
func (r *run) compare(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	if err := r.weighPair(x, y, 1); err != nil {
		return nil, err
	}
	ok, err := starlark.Compare(op, x, y)
	return starlark.Bool(ok), err
}

// weighPair is called before x is compared with y n times.
func (r *run) weighPair(x, y starlark.Value, n int) error {
	switch x := x.(type) {
	case starlark.String:
		if y, ok := y.(starlark.String); ok {
			return r.workN(n, min(len(x), len(y)))
		}
		return r.work(n)
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float:
		return r.work(n)
	}
	switch y.(type) {
	case starlark.String, starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float:
		return r.work(n)
	}
	if x.Type() != y.Type() {
		return r.work(n)
	}
	if starlark.Len(y) < starlark.Len(x) {
		x = y
	}
	return r.weigh(x, n)
}

// in is x in y.
func (r *run) in(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	var err error
	switch y := y.(type) {
	case *starlark.List, starlark.Tuple:
		err = r.workElements(x, y)
	case starlark.String:
		err = r.work(len(y))
	case starlark.Bytes:
		err = r.work(len(y))
	case starlark.Mapping, *starlark.Set:
		err = r.weighKey(x)
	}
	if err != nil {
		return nil, err
	}
	return starlark.Binary(op, x, y)
}

// workElements is called before x is compared with each element of a sequence.
func (r *run) workElements(x, sequence starlark.Value) error {
	if err := r.work(8 * starlark.Len(sequence)); err != nil {
		return err
	}
	switch x.(type) {
	case starlark.NoneType, starlark.Bool, starlark.Int, starlark.Float:
		return nil
	}
	return r.weigh(x, starlark.Len(sequence))
}

// slice is x[lo:hi:step].
func (r *run) slice(x, lo, hi, step starlark.Value) (starlark.Value, error) {
	sliceable, ok := x.(starlark.Sliceable)
	if !ok {
		return nil, fmt.Errorf("invalid slice operand %s", x.Type())
	}
	n, by := sliceable.Len(), 1
	if step != starlark.None {
		var err error
		if by, err = starlark.AsInt32(step); err != nil {
			return nil, fmt.Errorf("invalid slice step: %w", err)
		}
		if by == 0 {
			return nil, fmt.Errorf("invalid slice step: 0")
		}
	}
	least, most, start, end := 0, n, 0, n
	if by < 0 {
		least, most, start, end = -1, n-1, n-1, -1
	}
	for _, bound := range []struct {
		of starlark.Value
		to *int
	}{{lo, &start}, {hi, &end}} {
		if bound.of == starlark.None {
			continue
		}
		i, err := starlark.AsInt32(bound.of)
		if err != nil {
			return nil, fmt.Errorf("invalid slice index: %w", err)
		}
		if i < 0 {
			i += n
		}
		*bound.to = min(max(i, least), most)
	}
	if by > 0 {
		end = max(end, start)
	} else {
		end = min(end, start)
	}
	size := 0
	switch x.(type) {
	case starlark.String, starlark.Bytes:
		if size = 0; by != 1 {
			size = 1
		}
	default:
		size = sizeSlot
	}
	if err := r.allocN((end-start)/by+1, size); err != nil {
		return nil, err
	}
	if err := r.alloc(sizeText); err != nil {
		return nil, err
	}
	return sliceable.Slice(start, end, by), nil
}

// attr is x.name, or an error that says what there is.
func attr(x starlark.Value, name string) (starlark.Value, error) {
	v, err := member(x, name)
	if v != nil || err != nil {
		return v, err
	}
	var names []string
	if with, ok := x.(starlark.HasAttrs); ok {
		names = with.AttrNames()
	}
	return nil, fmt.Errorf("%s has no .%.200s%s", x.Type(), name, didYouMean(name, names))
}

// member is x.name, nil when there is none. Methods of the interpreter's own types
// are metered.
func member(x starlark.Value, name string) (starlark.Value, error) {
	if method := methodsOf(x)[name]; method != nil {
		return method.BindReceiver(x), nil
	}
	with, ok := x.(starlark.HasAttrs)
	if !ok {
		return nil, nil
	}
	v, err := with.Attr(name)
	if missing := starlark.NoSuchAttrError(""); errors.As(err, &missing) {
		return nil, nil
	}
	return v, err
}
