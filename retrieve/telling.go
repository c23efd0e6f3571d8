package retrieve

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"toolfinch/tool"
)

// Telling returns for each of several sets of tools up to n tags that many of its tools and few of the other sets have.
func (c *Catalog) Telling(sets map[string][]*tool.Tool, n int) map[string][]string {
	counts, spread := map[string]map[string]int{}, map[string]int{} // by set; how many sets have a tag
	for name, tools := range sets {
		count := map[string]int{}
		for _, t := range tools {
			for _, tag := range c.words.tagsOf(t)[1:] { // the first is the server
				if count[tag]++; count[tag] == 1 {
					spread[tag]++
				}
			}
		}
		counts[name] = count
	}
	telling := map[string][]string{}
	for name, count := range counts {
		score := func(tag string) float64 {
			return float64(count[tag]) * math.Log(1+float64(len(sets))/float64(spread[tag]))
		}
		tags := slices.DeleteFunc(slices.Sorted(maps.Keys(count)), isHint)
		slices.SortStableFunc(tags, func(a, b string) int { return cmp.Compare(score(b), score(a)) })
		telling[name] = tags[:min(n, len(tags))]
	}
	return telling
}
