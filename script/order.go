package script

import (
	"errors"
	"fmt"
	"slices"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// ranked is a value and what it is ordered by.
type ranked struct{ value, key starlark.Value }

// rank returns what an iterable yields, with keys.
func (r *run) rank(of starlark.Iterable, key starlark.Callable) ([]ranked, error) {
	values, err := r.elements(of, -1)
	if err != nil {
		return nil, err
	}
	if err := r.allocN(len(values), 4*sizeSlot); err != nil {
		return nil, err
	}
	out := make([]ranked, len(values))
	for i, v := range values {
		out[i] = ranked{v, v}
		if key == nil {
			continue
		}
		if i%16 == 15 { // a builtin takes no steps
			if err := r.work(16 * nodeWork); err != nil {
				return nil, err
			}
		}
		if out[i].key, err = starlark.Call(r.thread, key, starlark.Tuple{v}, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ordering compares, and weighs what it compares. After its first error it does
// neither.
type ordering struct {
	r     *run
	count int
	err   error
}

func (o *ordering) less(x, y starlark.Value) (less bool) {
	if o.err != nil {
		return false
	}
	if o.count++; o.count%16 == 0 {
		o.err = o.r.work(16 * nodeWork)
	}
	if o.err == nil {
		o.err = o.r.weighPair(x, y, 1)
	}
	if o.err == nil {
		less, o.err = starlark.Compare(syntax.LT, x, y)
	}
	return less
}

// sortedFunction is sorted(iterable, key=None, reverse=False).
var sortedFunction = builtin("sorted", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var of starlark.Iterable
	var key starlark.Callable
	var reverse bool
	if err := starlark.UnpackArgs("sorted", args, kwargs, "iterable", &of, "key??", &key, "reverse?", &reverse); err != nil {
		return nil, err
	}
	all, err := r.rank(of, key)
	if err != nil {
		return nil, err
	}
	o := ordering{r: r}
	slices.SortStableFunc(all, func(x, y ranked) int {
		if reverse {
			x, y = y, x
		}
		if o.less(x.key, y.key) {
			return -1
		}
		return 0 // stable sorting asks for nothing else
	})
	if o.err != nil {
		return nil, o.err
	}
	out := make([]starlark.Value, len(all))
	for i, one := range all {
		out[i] = one.value
	}
	return starlark.NewList(out), nil
})

// extremum is min or max: of several arguments, or of what one yields.
func extremum(name string, before func(o *ordering, x, y starlark.Value) bool) *starlark.Builtin {
	return builtin(name, func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var key starlark.Callable
		if err := starlark.UnpackArgs(name, nil, kwargs, "key??", &key); err != nil {
			return nil, err
		}
		var of starlark.Iterable = args
		switch len(args) {
		case 0:
			return nil, errors.New(name + ": want something to choose from")
		case 1:
			var ok bool
			if of, ok = args[0].(starlark.Iterable); !ok {
				return nil, fmt.Errorf("%s: a %s is not iterable", name, args[0].Type())
			}
		}
		all, err := r.rank(of, key)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, errors.New(name + ": argument is an empty sequence")
		}
		o, best := ordering{r: r}, all[0]
		for _, one := range all[1:] {
			if before(&o, one.key, best.key) {
				best = one
			}
			if o.err != nil {
				return nil, o.err
			}
		}
		return best.value, nil
	})
}

var (
	minFunction = extremum("min", func(o *ordering, x, y starlark.Value) bool { return o.less(x, y) })
	maxFunction = extremum("max", func(o *ordering, x, y starlark.Value) bool { return o.less(y, x) })
)
