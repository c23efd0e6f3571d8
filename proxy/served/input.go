package served

import (
	"encoding/json"
	"time"

	"toolfinch/configs"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
	"toolfinch/view"
)

// Input is everything that a value is built of, beside the value before.
type Input struct {
	Config   *configs.Config
	Listings map[string]Listing // by server
	// Changed are the servers with news since the value before. A view that uses none of them stays as
	// it is; with nil every view is compiled.
	Changed    map[string]bool
	Accept     func([]view.Problem) error // decides whether views with problems are built; nil: they are
	Env        view.Env                   // the surroundings that all views share
	Pre        []view.PreCall             // before the hooks of each view
	Post       []view.PostCall
	Skills     view.Upstream  // the configured folders' skills, with the layers below all views; no Server: none is configured
	Faults     []view.Problem // of these folders
	Limits     *rate.Limits
	Scopes     inbound.Scopes
	Kept       *tool.Tool // the meta-tool that reads kept results
	Replicated bool       // every replica must decide alike how tools are listed
}

// Listing is what is known of a server.
type Listing struct {
	Listed       bool         // false: its tools are not known
	Tools        []*tool.Tool // with the layers below all views; the same slice until something changes
	Held         map[tool.ID]pins.Held
	Waiting      int             // held definitions without the rejected ones
	Instructions string          // that were approved last
	Capabilities json.RawMessage // nil: not known
	Era          upstream.Era
	Cache        map[tool.Kind]upstream.CacheHint
	Answered     bool      // it was listed, or has failed, since the start
	Failed       bool      // it has not come up since it failed: nobody waits for it
	StartsUntil  time.Time // how long requests wait for its first list; zero: they do not
}

// CutTo leaves the tools of the first servers that have at most so many together; the other servers are as if
// they had not been listed yet. It reports whether there are such.
func CutTo(all map[string]Listing, config *configs.Config, most int) (cut bool) {
	for _, s := range config.Servers {
		listing := all[s.Name]
		if n := len(listing.Tools); n > most {
			listing.Tools, listing.Listed, cut = nil, false, true
			all[s.Name] = listing
		} else {
			most -= n
		}
	}
	return cut
}

// builder makes one Served.
type builder struct {
	Input
	Runtime
	before *Served
	next   *Served
}

// plan is a compiled view without a catalog. Only its catalog can still fail.
type plan struct {
	*View
	same  bool           // the view is served already, and stays
	find  string         // the meta-tool that answers name to clients that look for a tool
	offer retrieve.Offer // of retrieve_tools and call_tool
	// combines says that the view combines other views: its tools have the layers of their views.
	combines bool
	below    int // clients are listed every tool if all tools cost fewer tokens; 0: they are not
}
