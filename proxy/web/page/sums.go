package page

import (
	"context"
	"time"
)

// Sums is the data of the overview, except the servers.
type Sums struct {
	Tools         int    // number of tools that the user may use
	Store         string // why the store cannot store now
	Configuration string // base name of the file; "" unless the owner asks
	Saved         int64  // weighted tokens saved since the start
	Percent       int    // Saved, in per cent
	Replicas      []Replica
	Differ        []string // differences between the replicas; a problem only if they last
}

// Replica is one of the processes that share the store. Only the owner sees replicas.
type Replica struct {
	ID            string // unique; replicas may have the same name
	Name, Version string
	Since         time.Time
	Leads         []string // servers that it lists for all replicas, sorted
	This          bool     // this replica serves the page
	Sessions      int      // sessions; only of this replica
}

// Minute counts the calls that ended in one minute.
type Minute struct {
	Start       time.Time
	All, Failed int
}

// summing is the Backend of the overview.
type summing interface {
	Sums(ctx context.Context) Sums
	// Hour counts the calls of the last 60 minutes, oldest minute first. It is nil unless the owner asks.
	Hour(ctx context.Context) []Minute
}
