package upstream

import (
	"encoding/json"
	"time"

	"toolfinch/tool"
)

// Change is the news about one server. If Err is set, only Err and Server count, and older
// news stays valid.
type Change struct {
	Server       string
	Era          Era
	Info         json.RawMessage // serverInfo
	Capabilities json.RawMessage // of the server, as sent
	Instructions string
	Interactive  bool                    // the server asks clients something
	Defs         []*tool.Def             // of all kinds, in the order of tool.Kinds, each as listed
	Cache        map[tool.Kind]CacheHint // of the kinds whose list came with a hint
	Faults       Faults                  // definitions that are left out or mended
	Unheard      []tool.Kind             // kinds whose list has failed and was never received before
	// Followed says that another process lists the server: this process knows only Era and
	// Interactive.
	Followed bool
	Outdated bool  // with Followed: the server said that its lists have changed
	Version  int64 // with Followed: of the stored list; 0 if unknown
	Err      error

	served func() // see Served; nil if nobody waits
}

// Served must be called once clients are served what the change says: calls wait for that whose server changed its
// lists meanwhile.
func (c *Change) Served() {
	if c.served != nil {
		c.served()
	}
}

// CacheHint says how long a 2026-07-28 server lets clients keep a list.
type CacheHint struct {
	TTL    time.Duration
	Public bool // the list is the same for everybody
}

// Known is the stored knowledge about a server.
type Known struct {
	Era         Era
	Interactive bool // the server asks clients something
	Listed      bool // its tools were listed once
	Failure     Failure
}

// Failure is why a server could not be listed last, and when; zero if nothing has failed since
// it was listed.
type Failure struct {
	Reason string // masked
	At     time.Time
}

// maxFaults is how many faults of a list are described; further faults are counted.
const maxFaults = 20

// Fault is a definition that clients do not accept as its server lists it.
type Fault struct {
	Kind   tool.Kind
	Name   string // as listed, at most 100 characters; "number 3" for a definition without a name
	Mended bool   // the definition is served, as tool.TakeIn mends it; if false it is left out
	Text   string // the fault, and the definition served instead
}

// Faults are the faults in a server's lists.
type Faults struct {
	LeftOut, Mended int     // the numbers of faulty definitions
	Described       []Fault // the first faults, at most 20 of each kind
}

// add adds the faults of another list.
func (f *Faults) add(g Faults) {
	f.LeftOut += g.LeftOut
	f.Mended += g.Mended
	f.Described = append(f.Described, g.Described...)
}

func (f *Faults) note(fault Fault) {
	if fault.Mended {
		f.Mended++
	} else {
		f.LeftOut++
	}
	if len(f.Described) < maxFaults {
		f.Described = append(f.Described, fault)
	}
}
