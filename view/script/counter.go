package script

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.starlark.net/starlark"
)

// Bounds of a program's counters. Beyond them the oldest counts are forgotten.
const (
	maxCounted = 10_000  // times in one window
	maxKeys    = 10_000  // windows
	maxTimes   = 500_000 // times in all windows
	maxKey     = 256     // bytes; a longer key becomes its hash
)

// counter counts keys within sliding windows, for rate limits: values that a module defines are frozen.
type counter struct {
	mu      sync.Mutex // guards the rest; held over memory only
	windows map[windowKey]*window
	total   int // times in all windows
}

type windowKey struct {
	key    string
	length time.Duration
}

// window has the times of a key, the oldest first.
type window struct{ times []time.Time }

var counterSeed = maphash.MakeSeed()

// count counts a key now, and returns its count within the window that ends now.
func (c *counter) count(key string, length time.Duration, now time.Time) int {
	if len(key) > maxKey {
		key = fmt.Sprintf("%s %x", key[:maxKey-20], maphash.String(counterSeed, key))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.windows == nil {
		c.windows = map[windowKey]*window{}
	}
	at := windowKey{strings.Clone(key), length}
	w := c.windows[at]
	if w == nil {
		if len(c.windows) >= maxKeys {
			c.forget(now)
		}
		w = &window{}
		c.windows[at] = w
	}
	c.expire(w, now.Add(-length))
	if len(w.times) >= maxCounted {
		w.times = slices.Delete(w.times, 0, 1)
		c.total--
	}
	w.times = append(w.times, now)
	if c.total++; c.total > maxTimes {
		c.forget(now)
	}
	return len(w.times)
}

// expire drops the times up to until.
func (c *counter) expire(w *window, until time.Time) {
	n := 0
	for n < len(w.times) && !w.times[n].After(until) {
		n++
	}
	if n > 0 {
		w.times = slices.Delete(w.times, 0, n)
		c.total -= n
	}
}

// forget drops expired windows, then the oldest ones, until a quarter of the room is free.
func (c *counter) forget(now time.Time) {
	for key, w := range c.windows {
		if c.expire(w, now.Add(-key.length)); len(w.times) == 0 {
			delete(c.windows, key)
		}
	}
	last := func(key windowKey) time.Time { times := c.windows[key].times; return times[len(times)-1] }
	keys := slices.SortedFunc(maps.Keys(c.windows), func(a, b windowKey) int {
		return cmp.Or(last(a).Compare(last(b)), cmp.Compare(a.key, b.key))
	})
	for _, key := range keys {
		if len(c.windows) <= maxKeys*3/4 && c.total <= maxTimes*3/4 {
			return
		}
		c.total -= len(c.windows[key].times)
		delete(c.windows, key)
	}
}

// counterFunction is counter(key, window_seconds).
var counterFunction = builtin("counter", func(r *run, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var key string
	var seconds starlark.Value
	if err := starlark.UnpackArgs("counter", args, kwargs, "key", &key, "window_seconds", &seconds); err != nil {
		return nil, err
	}
	length, ok := starlark.AsFloat(seconds)
	if !ok || !(length > 0 && length <= 366*24*3600) {
		return nil, errors.New("counter: window_seconds must be a number above 0, at most a year")
	}
	return starlark.MakeInt(r.count.count(key, time.Duration(length*float64(time.Second)), r.now())), nil
})
