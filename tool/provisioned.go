package tool

import (
	"time"
)

// Provisioned is a tool that its owner may call in a gated view.
type Provisioned struct {
	Owner  string    // as Call.Owner
	ID     ID        // the upstream's tool; it need not exist any more
	Until  time.Time // end of the permission; zero: none
	Tokens int       // tokens of its listed definition, when last counted
}

// Over reports whether the permission has ended.
func (p Provisioned) Over(now time.Time) bool { return !p.Until.IsZero() && !p.Until.After(now) }
