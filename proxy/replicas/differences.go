package replicas

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"toolfinch/store"
)

// Differences describes the versions and settings of replicas that should be the same, but differ.
func Differences(all []store.Replica) []string {
	differ := []string{}
	for _, one := range []struct {
		of   func(store.Replica) string
		text string
	}{
		{func(r store.Replica) string { return r.Version }, "they run different versions: %s. That is meant for the time of an update, from one minor version to the next"},
		{func(r store.Replica) string { return r.Servers }, "their configurations have different servers: %s. A server that not all have is called over those that have it alone"},
		{func(r store.Replica) string { return r.Policy }, "their configurations or policies differ: %s"},
	} {
		by := map[string][]string{}
		for _, r := range all {
			by[one.of(r)] = append(by[one.of(r)], r.Name)
		}
		if len(by) < 2 {
			continue
		}
		var parts []string
		for value, names := range by {
			parts = append(parts, cmp.Or(value, "-")+" ("+strings.Join(names, ", ")+")")
		}
		slices.Sort(parts)
		differ = append(differ, fmt.Sprintf(one.text, strings.Join(parts, "; ")))
	}
	return differ
}
