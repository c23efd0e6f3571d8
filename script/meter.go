package script

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// Bounds that no limit raises.
const (
	maxDepth   = 1000    // of nested values: whatever walks them recurses
	maxIntBits = 100_000 // of an integer: its arithmetic and its digits take quadratic time
	maxMessage = 2000    // bytes of an error
	// workPerStep is how many bytes are looked at for the price of a step.
	workPerStep = 256
	// maxStretch is how many steps' worth is done at a stretch: what takes more is
	// refused, however many steps are left, since nothing could stop it.
	maxStretch = 4 * DefaultSteps
	// nodeWork is how many bytes count for as much as one value of a tree.
	nodeWork = 64
)

// Approximate sizes in memory, with the slack of growing.
const (
	sizeSlot   = 16  // a value in a list
	sizeText   = 16  // a string beside its bytes
	sizeDict   = 560 // an empty dict or set: it has room for eight entries
	sizeEntry  = 120 // one more
	sizePair   = 72  // a tuple of two in a list
	sizeNumber = 160 // of a float made an integer
)

// errTime is the cause of a context that ended for the limit of time.
var errTime = errors.New("time is over")

// run is one run of a script: it bounds and counts what that does. Only the
// goroutine that runs the script touches it.
type run struct {
	ctx    context.Context
	thread *starlark.Thread
	limits Limits
	memory int64 // bytes left
	calls  int   // of tools, left
	owed   int   // bytes looked at, not yet a step
	keys   crowds
	logged int   // bytes of the log
	lines  int   // of the log
	limit  error // that stopped the interpreter, nil while none did

	info  *Info
	host  Host
	log   func(string)
	now   func() time.Time
	count *counter // nil without a program

	end func() // to be called when the run is over
}

const runKey = "run"

func runOf(thread *starlark.Thread) *run { return thread.Local(runKey).(*run) }

func limitError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))
}

func (r *run) errSteps() error {
	return limitError("%d steps: loop less, or raise the limit of steps", r.limits.Steps)
}

func (r *run) errTime() error {
	return limitError("%s of time: do less, or raise the timeout", r.limits.Time)
}

// alloc is called before n bytes are allocated.
func (r *run) alloc(n int64) error {
	if n < 0 || n > r.memory {
		r.memory = 0 // what is over budget once stays so
		return limitError("%d bytes of memory in all: make smaller values, or fewer", r.limits.Memory)
	}
	r.memory -= n
	return nil
}

// allocN is alloc of n things of a size.
func (r *run) allocN(n, size int) error {
	if n <= 0 || size <= 0 {
		return nil
	}
	over, total := bits.Mul64(uint64(n), uint64(size))
	if over != 0 || total > 1<<62 {
		return r.alloc(-1)
	}
	return r.alloc(int64(total))
}

// work is called before a builtin looks at n bytes. What is less than a step adds
// up.
func (r *run) work(n int) error {
	r.owed += max(n, 0)
	if r.owed < workPerStep {
		return nil
	}
	steps := uint64(r.owed / workPerStep)
	r.owed %= workPerStep
	if r.thread.Steps > r.limits.Steps || steps > r.limits.Steps-r.thread.Steps {
		r.thread.Steps = r.limits.Steps
		return r.errSteps()
	}
	if steps > maxStretch {
		return limitError("%d bytes looked at in one operation: split it up", maxStretch*workPerStep)
	}
	r.thread.Steps += steps
	return r.alive()
}

// workN is work on n things of a size.
func (r *run) workN(n, size int) error {
	over, total := bits.Mul64(uint64(max(n, 0)), uint64(max(size, 0)))
	if over != 0 || total > 1<<62 {
		total = 1 << 62
	}
	return r.work(int(total))
}

// alive fails once the run is to end. Loops in builtins ask it now and then.
func (r *run) alive() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return context.Cause(r.ctx)
}

// elements returns what an iterable yields, at most n of it when n is not
// negative.
func (r *run) elements(iterable starlark.Iterable, n int) (starlark.Tuple, error) {
	size := starlark.Len(iterable)
	if n >= 0 && (size > n || size < 0) {
		size = n
	}
	if size >= 0 {
		if err := r.allocN(size, sizeSlot); err != nil {
			return nil, err
		}
	}
	out := make(starlark.Tuple, 0, max(size, 0))
	var v starlark.Value
	iterator := iterable.Iterate()
	defer iterator.Done()
	for (n < 0 || len(out) < n) && iterator.Next(&v) {
		if len(out)%1024 == 1023 {
			if err := r.alive(); err != nil {
				return nil, err
			}
		}
		if size < 0 {
			if err := r.alloc(3 * sizeSlot); err != nil { // growing copies
				return nil, err
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// scale measures values, as the trees that whoever walks them sees: what is
// referred to twice counts twice.
type scale struct {
	r    *run
	left int64 // until it gives up
	node int   // what a value counts beside its bytes
	text bool  // quotes and digits count as they are printed
	seen int   // values
}

var errTooHeavy = errors.New("too heavy")
var errTooDeep = limitError("values nested deeper than %d", maxDepth)

func (s *scale) take(n int) error {
	if s.left -= int64(n); s.left < 0 {
		return errTooHeavy
	}
	return nil
}

func (s *scale) add(v starlark.Value, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	if s.seen++; s.seen%4096 == 0 {
		if err := s.r.alive(); err != nil {
			return err
		}
	}
	if err := s.take(s.node); err != nil {
		return err
	}
	switch v := v.(type) {
	case starlark.String:
		if s.text {
			return s.take(quotedSize(string(v)))
		}
		return s.take(8 + len(v))
	case starlark.Bytes:
		return s.take(8 + 4*len(v))
	case starlark.Int:
		if n, ok := v.Int64(); ok {
			if n > -10_000 && n < 10_000 {
				return s.take(8)
			}
			return s.take(22)
		}
		return s.take(8 + v.BigInt().BitLen()/3)
	case starlark.NoneType, starlark.Bool:
		return s.take(8)
	case starlark.Float:
		return s.take(26)
	case starlark.Tuple:
		if err := s.take(8); err != nil {
			return err
		}
		for _, element := range v {
			if err := s.add(element, depth+1); err != nil {
				return err
			}
		}
		return nil
	case *starlark.Dict:
		if err := s.take(8); err != nil {
			return err
		}
		for key, value := range v.Entries() {
			if err := s.add(key, depth+1); err != nil {
				return err
			}
			if err := s.add(value, depth+1); err != nil {
				return err
			}
		}
		return nil
	case *starlarkstruct.Struct:
		if err := s.take(16); err != nil {
			return err
		}
		for name, value := range v.Entries() {
			if err := s.take(len(name) + 4); err != nil {
				return err
			}
			if err := s.add(value, depth+1); err != nil {
				return err
			}
		}
		return nil
	case *starlark.List, *starlark.Set:
		if err := s.take(8); err != nil {
			return err
		}
		var element starlark.Value
		iterator := v.(starlark.Iterable).Iterate()
		defer iterator.Done()
		for iterator.Next(&element) {
			if err := s.add(element, depth+1); err != nil {
				return err
			}
		}
		return nil
	case *starlark.Function:
		if err := s.take(64 + len(v.Name())); err != nil {
			return err
		}
		if s.text {
			return nil
		}
		for i := range v.NumParams() {
			if value := v.ParamDefault(i); value != nil {
				if err := s.add(value, depth+1); err != nil {
					return err
				}
			}
		}
		for i := range v.NumFreeVars() {
			if _, value := v.FreeVar(i); value != nil {
				if err := s.add(value, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	case *starlark.Builtin:
		if err := s.take(64); err != nil {
			return err
		}
		if receiver := v.Receiver(); receiver != nil {
			return s.add(receiver, depth+1)
		}
		return nil
	case *declaration:
		return s.add(v.fn, depth+1)
	}
	return s.take(64)
}

// quotedSize is how long a string is when quoted, at most.
func quotedSize(s string) int {
	n := len(s) + 2
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f {
			n += 3
		} else if c == '"' || c == '\\' {
			n++
		}
	}
	return n
}

// allocText is called before values are printed.
func (r *run) allocText(values ...starlark.Value) error {
	n, err := r.textSize(values...)
	if err != nil {
		return err
	}
	return r.alloc(n)
}

// textSize is how long values are when printed, at most.
func (r *run) textSize(values ...starlark.Value) (int64, error) {
	s := scale{r: r, left: r.memory, node: 16, text: true}
	for _, v := range values {
		var err error
		if text, ok := v.(starlark.String); ok { // itself is printed without quotes
			err = s.take(len(text))
		} else {
			err = s.add(v, 0)
		}
		if errors.Is(err, errTooHeavy) {
			return 0, r.alloc(-1)
		} else if err != nil {
			return 0, err
		}
	}
	return r.memory - s.left, nil
}

// weigh measures a value that is to be walked n times. However many steps are
// left, one walk is bounded, since the interpreter does it at a stretch.
func (r *run) weigh(v starlark.Value, n int) error {
	n = max(n, 1)
	left := int64(0)
	if r.thread.Steps < r.limits.Steps {
		left = int64(min(r.limits.Steps-r.thread.Steps, DefaultSteps)) * workPerStep
	}
	s := scale{r: r, left: left / int64(n), node: nodeWork}
	switch err := s.add(v, 0); {
	case errors.Is(err, errTooHeavy):
		r.thread.Steps = r.limits.Steps
		return r.errSteps()
	case err != nil:
		return err
	}
	return r.work(int(left - s.left*int64(n)))
}

// weighKey is called before v is hashed.
func (r *run) weighKey(v starlark.Value) error {
	switch v := v.(type) {
	case starlark.String:
		return r.work(len(v))
	case starlark.Int, starlark.Bool, starlark.NoneType, starlark.Float:
		return nil
	}
	return r.weigh(v, 1)
}
