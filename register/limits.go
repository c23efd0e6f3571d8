package register

import "toolfinch/limit"

// Limits are those of all Lives that serve the same clients.
type Limits struct{ parked, parkedBytes *limit.Limit }

const (
	// maxParked is how many calls may wait for their clients, and maxParkedBytes how
	// long their requests and what they were not told yet may be, in bytes.
	maxParked      = 1000
	maxParkedBytes = 64 << 20
)

// NewLimits returns the limits, of which nothing is used.
func NewLimits() *Limits {
	const later = "answer what was asked, or try again later"
	return &Limits{
		parked:      limit.New("parked_calls", maxParked, "calls wait for their clients", later),
		parkedBytes: limit.New("parked_bytes", maxParkedBytes, "bytes of calls that wait for their clients", later),
	}
}

// All are the limits.
func (b *Limits) All() []*limit.Limit { return []*limit.Limit{b.parked, b.parkedBytes} }
