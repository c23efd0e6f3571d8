package telemetry

// Search is what a search asked, and what it found. It is kept apart from its operation, so that logs, traces and
// status cannot repeat it.
type Search struct {
	Query  string
	Server string // only tools of this server; "" for all
	Kind   string // what was searched, as clients name it; "" for tools
	Limit  int
	Hits   []SearchHit // the first ones, best first
	Found  int         // hits, also those missing in Hits
}

// SearchHit is a found definition.
type SearchHit struct {
	ID   string // server.name
	Name string // the client's name of it
}

// Searches are the searches of one operation.
type Searches struct {
	N    int64 // number of the operation
	View string
	All  []Search
}

// Bounds of kept searches.
const (
	maxQuery    = 2000     // bytes
	maxHits     = 10       // of one search
	maxSearches = 16       // of one operation
	maxSearched = 16 << 20 // bytes of all
	perStruct   = 100      // bytes at most of one of the types above, without its texts
)

// size is about how many bytes the searches hold.
func (s Searches) size() int {
	n := perStruct + len(s.View)
	for _, one := range s.All {
		n += perStruct + len(one.Query) + len(one.Server) + len(one.Kind)
		for _, h := range one.Hits {
			n += perStruct + len(h.ID) + len(h.Name)
		}
	}
	return n
}
