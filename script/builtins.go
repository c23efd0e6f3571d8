package script

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"toolfinch/nearest"
)

// meter is called before a builtin, to charge for it. It may change the
// arguments.
type meter func(r *run, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error

type methods map[string]*starlark.Builtin

func methodsOf(v starlark.Value) methods {
	switch v.(type) {
	case starlark.String:
		return stringMethods
	case *starlark.List:
		return listMethods
	case *starlark.Dict:
		return dictMethods
	case *starlark.Set:
		return setMethods
	}
	return nil
}

// metered wraps the methods of a value's type.
func metered(of starlark.HasAttrs, meters map[string]meter) methods {
	all := methods{}
	for name, charge := range meters {
		all[name] = charged(name, charge, func(b *starlark.Builtin) (starlark.Value, error) {
			return b.Receiver().(starlark.HasAttrs).Attr(name)
		})
	}
	for _, name := range of.AttrNames() {
		if all[name] == nil {
			panic("no meter for ." + name + " of " + of.Type()) // a new version of the interpreter has it
		}
	}
	return all
}

// byName are the metered builtins that take arguments by name, and the name, ""
// for any. Their meters know of it; what no meter has seen reaches no builtin.
var byName = map[string]string{"format": "", "update": "", "int": "base", "print": "sep", "fail": "sep"}

// charged is a builtin of the interpreter behind its meter.
func charged(name string, charge meter, original func(b *starlark.Builtin) (starlark.Value, error)) *starlark.Builtin {
	only, some := byName[name]
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		for _, pair := range kwargs {
			if key := string(pair[0].(starlark.String)); !some || only != "" && key != only {
				return nil, fmt.Errorf("%s takes no argument named %.40q", name, key)
			}
		}
		if err := charge(runOf(thread), b, args, kwargs); err != nil {
			return nil, err
		}
		of, err := original(b)
		if err != nil {
			return nil, err
		}
		return of.(*starlark.Builtin).CallInternal(thread, args, kwargs)
	})
}

// free is the meter of what costs nothing, or shares its receiver's memory.
func free(*run, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) error { return nil }

func text(b *starlark.Builtin) string { return string(b.Receiver().(starlark.String)) }

// scan is the meter of what looks at its whole receiver, a text.
func scan(r *run, b *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) error {
	return r.work(len(text(b)))
}

// rewriteText is the meter of what makes a text of about the same length.
func rewriteText(r *run, b *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) error {
	return r.alloc(int64(sizeText + 4*len(text(b)))) // a malformed byte becomes three
}

// affix is the meter of what looks for one of several texts at an end.
func affix(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	s := len(text(b))
	if err := r.work(s); err != nil || len(args) == 0 {
		return err
	}
	several, _ := args[0].(starlark.Tuple)
	total := len(several) * sizeSlot
	for _, one := range several {
		total += min(max(starlark.Len(one), 0), s)
	}
	return r.work(total)
}

// strip is the meter of what removes characters at the ends: each is looked for
// in the others.
func strip(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	s, cutset := len(text(b)), ""
	if len(args) > 0 {
		cutset, _ = starlark.AsString(args[0])
	}
	if err := r.work(s + len(cutset)); err != nil {
		return err
	}
	if strings.IndexFunc(cutset, func(c rune) bool { return c >= utf8.RuneSelf }) < 0 {
		return nil
	}
	return r.workN(s, len(cutset))
}

// parts is the meter of what splits a text.
func parts(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	s := text(b)
	if err := r.work(len(s)); err != nil {
		return err
	}
	separator := ""
	if len(args) > 0 {
		separator, _ = starlark.AsString(args[0])
	}
	n := 1
	switch {
	case strings.HasSuffix(b.Name(), "lines"):
		n += strings.Count(s, "\n")
	case separator != "":
		n += strings.Count(s, separator)
	default:
		for _, c := range s {
			if unicode.IsSpace(c) {
				n++
			}
		}
	}
	if len(args) > 1 { // as many as they say are made room for
		if most, err := starlark.AsInt32(args[1]); err == nil && most > n {
			args[1] = starlark.MakeInt(n)
		}
	}
	return r.allocN(n, 2*sizeSlot+2*sizeText)
}

func values(kwargs []starlark.Tuple) (out []starlark.Value) {
	for _, pair := range kwargs {
		out = append(out, pair[1])
	}
	return out
}

// partition is the meter of what makes three texts of one.
func partition(r *run, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error {
	if err := scan(r, b, args, kwargs); err != nil {
		return err
	}
	return r.alloc(2 * sizePair)
}

var stringMethods = metered(starlark.String(""), map[string]meter{
	"capitalize": rewriteText, "lower": rewriteText, "title": rewriteText, "upper": rewriteText,
	"strip": strip, "lstrip": strip, "rstrip": strip, "removeprefix": scan, "removesuffix": scan,
	"count": scan, "find": scan, "rfind": scan, "index": scan, "rindex": scan, "startswith": affix, "endswith": affix,
	"isalnum": scan, "isalpha": scan, "isdigit": scan, "islower": scan, "isspace": scan, "istitle": scan, "isupper": scan,
	"codepoint_ords": free, "codepoints": free, "elem_ords": free, "elems": free,
	"partition": partition, "rpartition": partition,
	"split": parts, "rsplit": parts, "splitlines": parts,
	"format": func(r *run, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error {
		// Each name is looked for among all.
		if err := r.workN(strings.Count(text(b), "{"), 32*len(kwargs)); err != nil {
			return err
		}
		return r.allocFormat(text(b), "{", append(args[:len(args):len(args)], values(kwargs)...)...)
	},
	"join": func(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
		if len(args) != 1 {
			return nil
		}
		iterable, ok := args[0].(starlark.Iterable)
		if !ok {
			return nil
		}
		elements, err := r.elements(iterable, -1)
		if err != nil {
			return err
		}
		args[0] = elements
		if err := r.allocN(len(elements), len(text(b))); err != nil {
			return err
		}
		total := int64(0)
		for _, element := range elements {
			if s, ok := element.(starlark.String); ok {
				total += int64(len(s))
			}
		}
		return r.alloc(2 * total) // growing copies
	},
	"replace": func(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
		s := text(b)
		if err := r.work(len(s)); err != nil {
			return err
		}
		if len(args) < 2 {
			return nil
		}
		old, _ := starlark.AsString(args[0])
		with, _ := starlark.AsString(args[1])
		n := strings.Count(s, old)
		if len(args) > 2 {
			if most, err := starlark.AsInt32(args[2]); err == nil && most >= 0 {
				n = min(n, most)
			}
		}
		if err := r.alloc(int64(sizeText + len(s))); err != nil {
			return err
		}
		return r.allocN(n, len(with))
	},
})

// shift is the meter of what moves the elements of a list.
func shift(r *run, b *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) error {
	return r.work(sizeSlot * starlark.Len(b.Receiver()))
}

// find is the meter of what looks for an element in a list.
func find(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	if len(args) == 0 {
		return nil
	}
	return r.workElements(args[0], b.Receiver())
}

var listMethods = metered(new(starlark.List), map[string]meter{
	"append": func(r *run, _ *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) error {
		return r.alloc(4 * sizeSlot)
	},
	"clear": free,
	"extend": func(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
		if len(args) != 1 {
			return nil
		}
		if iterable, ok := args[0].(starlark.Iterable); ok {
			elements, err := r.elements(iterable, -1)
			if err != nil {
				return err
			}
			args[0] = elements
			// When there is no room, all are copied.
			return r.allocN(len(elements), 3*sizeSlot)
		}
		return nil
	},
	"index": find,
	"insert": func(r *run, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error {
		if err := shift(r, b, args, kwargs); err != nil {
			return err
		}
		return r.alloc(4 * sizeSlot)
	},
	"pop":    shift,
	"remove": find,
})

// key is the meter of what looks up a key.
func key(r *run, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	if len(args) == 0 {
		return nil
	}
	return r.weighKey(args[0])
}

// newKey is the meter of what may add a key.
func newKey(r *run, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	if err := r.alloc(sizeEntry / 2); err != nil || len(args) == 0 { // between a new one and an old one
		return err
	}
	return r.put(args[0])
}

// list is the meter of what makes a list with n bytes for each of its elements.
func list(n int) meter {
	return func(r *run, b *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) error {
		return r.allocN(starlark.Len(b.Receiver())+4, n)
	}
}

var dictMethods = metered(new(starlark.Dict), map[string]meter{
	"clear": free,
	"get":   key, "pop": key, "setdefault": newKey,
	"items": list(2 * sizePair), "keys": list(sizeSlot), "values": list(sizeSlot + sizePair),
	"popitem": list(1), // it looks for the first
	"update": func(r *run, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error {
		n := len(kwargs)
		if len(args) == 1 {
			update, err := r.newDict(args[0])
			if err != nil {
				return err
			}
			args[0] = update
			n += update.Len()
		}
		for _, pair := range kwargs {
			if err := r.put(pair[0]); err != nil {
				return err
			}
		}
		return r.allocN(n, sizeEntry)
	},
})

// sets is the meter of what combines sets: an iterable that is none is made one,
// bounded, first.
func sets(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	if err := r.putAll(b.Receiver().(*starlark.Set)); err != nil {
		return err
	}
	n := starlark.Len(b.Receiver())
	for i, arg := range args {
		iterable, ok := arg.(starlark.Iterable)
		if !ok {
			continue // the method says it
		}
		if set, ok := arg.(*starlark.Set); ok {
			if err := r.putAll(set); err != nil {
				return err
			}
		} else {
			set, err := r.newSet(iterable)
			if err != nil {
				return err
			}
			args[i] = set
		}
		n += starlark.Len(args[i])
	}
	if strings.HasPrefix(b.Name(), "is") {
		return r.workN(n, sizeEntry)
	}
	return r.alloc(sizeDict + int64(n)*sizeEntry)
}

var setMethods = metered(new(starlark.Set), map[string]meter{
	"add": newKey, "clear": free, "discard": key, "pop": free, "remove": key,
	"difference": sets, "intersection": sets, "issubset": sets, "issuperset": sets,
	"symmetric_difference": sets, "union": sets, "update": sets,
})

// newSet makes a set of what an iterable yields.
func (r *run) newSet(iterable starlark.Iterable) (*starlark.Set, error) {
	if err := r.alloc(sizeDict); err != nil {
		return nil, err
	}
	set := new(starlark.Set)
	iterator := iterable.Iterate()
	defer iterator.Done()
	var v starlark.Value
	for iterator.Next(&v) {
		if err := r.put(v); err != nil {
			return nil, err
		}
		before := set.Len()
		if err := set.Insert(v); err != nil {
			return nil, err
		}
		if set.Len() > before {
			if err := r.alloc(sizeEntry); err != nil {
				return nil, err
			}
		}
	}
	return set, nil
}

// set is dict[key] = value, charged as if the key was new.
func (r *run) set(dict *starlark.Dict, key, value starlark.Value) error {
	if err := r.alloc(sizeEntry); err != nil {
		return err
	}
	if err := r.put(key); err != nil {
		return err
	}
	return dict.SetKey(key, value)
}

// newDict makes a dict of a dict, or of pairs.
func (r *run) newDict(from starlark.Value) (*starlark.Dict, error) {
	if err := r.alloc(sizeDict); err != nil {
		return nil, err
	}
	dict := new(starlark.Dict)
	if mapping, ok := from.(*starlark.Dict); ok {
		for key, value := range mapping.Entries() {
			if err := r.set(dict, key, value); err != nil {
				return nil, err
			}
		}
		return dict, nil
	}
	iterable, ok := from.(starlark.Iterable)
	if !ok {
		return nil, fmt.Errorf("got %s, want a dict or pairs", from.Type())
	}
	iterator := iterable.Iterate()
	defer iterator.Done()
	var element starlark.Value
	for i := 0; iterator.Next(&element); i++ {
		pair, ok := element.(starlark.Iterable)
		if !ok {
			return nil, fmt.Errorf("element %d is no pair but %s", i, element.Type())
		}
		two, err := r.elements(pair, 3)
		if err != nil {
			return nil, err
		}
		if len(two) != 2 {
			return nil, fmt.Errorf("element %d is no pair", i)
		}
		if err := r.set(dict, two[0], two[1]); err != nil {
			return nil, err
		}
	}
	return dict, nil
}

// each is the meter of what makes something of all that its arguments yield, with
// n bytes for each.
func each(n int) meter {
	return func(r *run, b *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
		for i, arg := range args {
			iterable, ok := arg.(starlark.Iterable)
			if !ok {
				continue // the builtin says it
			}
			elements, err := r.elements(iterable, -1)
			if err != nil {
				return err
			}
			if err := r.allocN(len(elements), n); err != nil {
				return err
			}
			args[i] = elements
		}
		return nil
	}
}

// printed is the meter of what makes text of its arguments.
func printed(r *run, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error {
	for _, separator := range values(kwargs) {
		if err := r.allocN(len(args), 2*starlark.Len(separator)); err != nil {
			return err
		}
	}
	n, err := r.textSize(args...)
	if err != nil {
		return err
	}
	return r.alloc(2 * n) // growing copies
}

// digits is the meter of what reads a number, or makes one.
func digits(r *run, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
	if len(args) == 0 {
		return nil
	}
	if n, ok := args[0].(starlark.Int); ok {
		return r.alloc(int64(bitLen(n) / 8))
	}
	if starlark.Len(args[0]) > maxIntBits/4 {
		return limitError("%d digits of a number", maxIntBits/4)
	}
	return r.alloc(int64(sizeNumber + max(starlark.Len(args[0]), 0)))
}

// universe are the interpreter's own functions whose cost depends on their
// arguments, metered. The others are as they are.
var universe = func() starlark.StringDict {
	all := starlark.StringDict{}
	for name, charge := range map[string]meter{
		"list": each(sizeSlot), "tuple": each(sizeSlot), "reversed": each(sizeSlot), "enumerate": each(2 * sizePair),
		"bytes": func(r *run, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error {
			if len(args) == 1 {
				if s, ok := args[0].(starlark.String); ok {
					return r.alloc(int64(sizeText + 6*len(s))) // a malformed byte becomes three, in growing copies
				}
			}
			return each(4)(r, b, args, kwargs)
		},
		"repr": func(r *run, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
			return r.allocText(args) // as a tuple: quoted
		},
		"str": func(r *run, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) error {
			if len(args) == 1 {
				if _, ok := args[0].(starlark.String); ok {
					return nil
				}
			}
			return printed(r, b, args, kwargs)
		},
		"print": printed, "fail": printed,
		"int": digits, "float": digits, "abs": digits,
		"chr": func(r *run, _ *starlark.Builtin, _ starlark.Tuple, _ []starlark.Tuple) error {
			return r.alloc(sizeText)
		},
		"zip": func(r *run, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) error {
			shortest := -1
			for _, arg := range args {
				if n := starlark.Len(arg); n >= 0 && (shortest < 0 || n < shortest) {
					shortest = n
				}
			}
			for i, arg := range args {
				iterable, ok := arg.(starlark.Iterable)
				if !ok {
					continue
				}
				elements, err := r.elements(iterable, shortest)
				if err != nil {
					return err
				}
				args[i] = elements
				shortest = len(elements)
			}
			return r.allocN(max(shortest, 0), sizePair+sizeSlot*len(args))
		},
	} {
		all[name] = charged(name, charge, func(*starlark.Builtin) (starlark.Value, error) { return starlark.Universe[name], nil })
	}
	all["set"] = builtin("set", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var from starlark.Iterable = starlark.Tuple{}
		if err := starlark.UnpackPositionalArgs("set", args, kwargs, 0, &from); err != nil {
			return nil, err
		}
		return r.newSet(from)
	})
	all["dict"] = builtin("dict", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var from starlark.Value = starlark.Tuple{}
		if err := starlark.UnpackPositionalArgs("dict", args, nil, 0, &from); err != nil {
			return nil, err
		}
		dict, err := r.newDict(from)
		if err != nil {
			return nil, fmt.Errorf("dict: %w", err)
		}
		for _, pair := range kwargs {
			if err := r.set(dict, pair[0], pair[1]); err != nil {
				return nil, err
			}
		}
		return dict, nil
	})
	all["sorted"], all["min"], all["max"] = sortedFunction, minFunction, maxFunction
	all["any"], all["all"] = quantifier("any", true), quantifier("all", false)
	all["getattr"] = builtin("getattr", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var of, otherwise starlark.Value
		var name string
		if err := starlark.UnpackPositionalArgs("getattr", args, kwargs, 2, &of, &name, &otherwise); err != nil {
			return nil, err
		}
		if otherwise != nil {
			if v, err := member(of, name); v == nil || err != nil {
				return otherwise, nil
			}
		}
		return attr(of, name)
	})
	all["hasattr"] = builtin("hasattr", func(_ *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var of starlark.Value
		var name string
		if err := starlark.UnpackPositionalArgs("hasattr", args, kwargs, 2, &of, &name); err != nil {
			return nil, err
		}
		v, err := member(of, name)
		return starlark.Bool(v != nil && err == nil), nil
	})
	all["dir"] = builtin("dir", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var of starlark.Value
		if err := starlark.UnpackPositionalArgs("dir", args, kwargs, 1, &of); err != nil {
			return nil, err
		}
		names := []starlark.Value{}
		if with, ok := of.(starlark.HasAttrs); ok {
			n := 50 // at most, but for those that a script makes
			if s, ok := of.(*starlarkstruct.Struct); ok {
				n = s.Len()
			}
			if err := r.allocN(n+1, 2*sizeSlot+2*sizeText); err != nil {
				return nil, err
			}
			for _, name := range slices.Sorted(slices.Values(with.AttrNames())) {
				names = append(names, starlark.String(name))
			}
		}
		return starlark.NewList(names), nil
	})
	return all
}()

// builtin makes a function of this package one of scripts.
func builtin(name string, do func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error)) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		return do(runOf(thread), args, kwargs)
	})
}

// quantifier is any (until true) or all (until false): range(10**9) is an
// argument, so it looks at the time.
func quantifier(name string, until starlark.Bool) *starlark.Builtin {
	return builtin(name, func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var of starlark.Iterable
		if err := starlark.UnpackPositionalArgs(name, args, kwargs, 1, &of); err != nil {
			return nil, err
		}
		iterator := of.Iterate()
		defer iterator.Done()
		var v starlark.Value
		for i := 0; iterator.Next(&v); i++ {
			if v.Truth() == until {
				return until, nil
			}
			if i%1024 == 1023 {
				if err := r.work(1024 * sizeSlot); err != nil {
					return nil, err
				}
			}
		}
		return !until, nil
	})
}

// didYouMean is a hint at the name most like one that is not there, or "".
func didYouMean(name string, names []string) string {
	near := nearest.Names(name, names[:min(len(names), 1000)], 1, nearest.Close)
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", near[0])
}
