// Package await lets tests wait for conditions instead of for time. It owns the one bound of such a
// wait; only tests import it.
package await

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/leeway"
)

// Bound bounds a wait. It is generous: a passing test never waits for it, and a busy machine may be
// slow.
const Bound = time.Minute

// Where no setting bounds a wait of the program, it waits this much longer in tests.
func init() { leeway.More.Store(int64(10 * time.Second)) }

// Expiry is for a test of an expiring wait: until it ends the program's waits are as short as outside
// of tests. The test must not be parallel.
func Expiry(t testing.TB) {
	more := leeway.More.Swap(0)
	t.Cleanup(func() { leeway.More.Store(more) })
}

const pause = 5 * time.Millisecond // between two looks

// True waits until the condition holds, else fails the test with the stacks of this module's
// goroutines.
func True(t testing.TB, condition func() bool) {
	t.Helper()
	if !within(condition) {
		stacks := slices.Sorted(maps.Values(goroutines([]string{"toolfinch/"})))
		t.Fatalf("not within %s; running:\n%.16384s", Bound, strings.Join(stacks, "\n\n"))
	}
}

// Contains waits until the text contains want, else fails the test with the last text.
func Contains(t testing.TB, text func() string, want string) {
	t.Helper()
	Nil(t, func() error {
		if got := text(); !strings.Contains(got, want) {
			return fmt.Errorf("%q does not contain %q", got, want)
		}
		return nil
	})
}

// Nil waits until check returns nil, else fails the test with its last error.
func Nil(t testing.TB, check func() error) {
	t.Helper()
	var err error
	if !within(func() bool { err = check(); return err == nil }) {
		t.Fatalf("not within %s: %v", Bound, err)
	}
}

// Value returns the next value of the channel.
func Value[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(Bound):
		t.Fatalf("nothing came within %s", Bound)
		panic("unreachable")
	}
}

// Context returns a context that ends with the test, or after Bound: for an operation without a bound
// of its own.
func Context(t testing.TB) context.Context { return bounded(t, Bound) }

// Program is Context for a slow foreign program, such as an agent: five times as long.
func Program(t testing.TB) context.Context { return bounded(t, 5*Bound) }

func bounded(t testing.TB, bound time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), bound, fmt.Errorf("not within %s", bound))
	t.Cleanup(cancel)
	return ctx
}

// Gone waits until no goroutine of the process has the function on its stack.
func Gone(t testing.TB, function string) {
	t.Helper()
	Nil(t, func() error {
		for _, stack := range goroutines([]string{function}) {
			return fmt.Errorf("this goroutine is left:\n%s", stack)
		}
		return nil
	})
}

// NoLeak runs f and waits until the goroutines that began meanwhile have ended, if their stacks name
// this module or one of the packages. It reads the whole process, so tests that use it must not be
// parallel.
func NoLeak(t testing.TB, f func(), packages ...string) {
	t.Helper()
	ended := Began(packages...)
	f()
	ended(t)
}

// Began is NoLeak for a cleanup: the returned function waits for the goroutines that have begun since.
func Began(packages ...string) (ended func(testing.TB)) {
	packages = append(packages, "toolfinch/")
	before := goroutines(packages)
	return func(t testing.TB) {
		t.Helper()
		Nil(t, func() error {
			for id, stack := range goroutines(packages) {
				if _, old := before[id]; !old {
					return fmt.Errorf("this goroutine is left:\n%s", stack)
				}
			}
			return nil
		})
	}
}

func within(condition func() bool) bool {
	for end := time.Now().Add(Bound); !condition(); time.Sleep(pause) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// goroutines returns the stacks that name one of the packages, by the goroutine's
// number.
func goroutines(packages []string) map[string]string {
	dump := make([]byte, 1<<20)
	for {
		n := runtime.Stack(dump, true)
		if n < len(dump) {
			dump = dump[:n]
			break
		}
		dump = make([]byte, 2*len(dump))
	}
	found := map[string]string{}
	for stack := range strings.SplitSeq(string(dump), "\n\n") {
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		for _, name := range packages {
			if strings.Contains(stack, name) {
				found[id] = stack
			}
		}
	}
	return found
}
