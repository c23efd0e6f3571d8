package tool

import (
	"time"
)

// Provisioned is a tool that its owner may call in a gated view.
type Provisioned struct {
	Owner  string    // as Call.Owner
	ID     ID        // the upstream's tool; it need not exist any more
	Until  time.Time // when that ends; zero: never
	Tokens int       // of its definition as clients are listed it, when that was last counted
}

// Over reports whether the time of the tool has come.
func (p Provisioned) Over(now time.Time) bool { return !p.Until.IsZero() && !p.Until.After(now) }
