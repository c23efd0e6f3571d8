package index

import (
	"slices"
	"testing"
)

// What a model of the owner's wrote of a tool is searched, and counts less than what
// the tool says of itself.
func TestWhatWasWrittenOfAToolIsSearched(t *testing.T) {
	enriched := doc(t, "s", "lift", "Raises a platform.")
	enriched.Def.Enriched = "You want to go upstairs by elevator."
	x := build(t, enriched,
		doc(t, "s", "hoist", "Rides an elevator to go upstairs or downstairs."),
		doc(t, "s", "lamp", "Lights a room."))
	if got := names(search(t, x, Query{Text: "elevator upstairs", Limit: 5})); !slices.Equal(got, []string{"s_hoist", "s_lift"}) {
		t.Errorf("found %v", got)
	}
}
