package retrieve

import (
	"maps"

	"toolfinch/tool"
)

// layered is a map that catalogs share, and what one of them has otherwise. It never
// changes.
type layered[K comparable] struct {
	all  map[K]*tool.Tool
	over map[K]*tool.Tool // counts before all; nil: is not there
}

func (l layered[K]) get(key K) *tool.Tool {
	if t, ok := l.over[key]; ok {
		return t
	}
	return l.all[key]
}

func (l layered[K]) keys() []K {
	keys := make([]K, 0, len(l.all))
	for key := range l.all {
		if _, ok := l.over[key]; !ok {
			keys = append(keys, key)
		}
	}
	for key, t := range l.over {
		if t != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// overShare is the share of a layered map, one in so many, that may be over: each change
// copies that, and rarely one copies all.
const overShare = 8

// with returns the map with other values.
func (l layered[K]) with(other map[K]*tool.Tool) layered[K] {
	next := layered[K]{l.all, make(map[K]*tool.Tool, len(l.over)+len(other))}
	maps.Copy(next.over, l.over)
	maps.Copy(next.over, other)
	if len(next.over)*overShare <= len(l.all) {
		return next
	}
	all := make(map[K]*tool.Tool, len(l.all)+len(other))
	for _, key := range next.keys() {
		all[key] = next.get(key)
	}
	return layered[K]{all: all}
}
