package page

import (
	"context"
	"time"

	"toolfinch/internal/printable"
)

// SeenClient is a client that is connected, or was lately. Its connections are counted as one client.
type SeenClient struct {
	Name      string // "name version", as the client states it; "" if it does not
	Principal string
	Transport string
	Sessions  int       // open sessions
	Since     time.Time // when the oldest open session began, or when the client was first seen lately
	Left      time.Time // when its last session ended; zero while one is open, and for clients without sessions
	Calls     int       // kept operations
	Last      time.Time // when the last of them began; zero for none
	LastCall  string    // what it called
	N         int64     // number of this operation
}

// Connected reports whether the client has an open session. 2026-07-28 clients have none: they count as connected
// for a while after a call.
func (c SeenClient) Connected() bool {
	return c.Sessions > 0 || c.Left.IsZero() && time.Since(c.Last) < recently
}

// recently is how long a client without a session counts as connected after its last call.
const recently = 5 * time.Minute

// Label is the client's name, or what else is known of it.
func (c SeenClient) Label() string {
	if c.Name == "" {
		return "a program without a name"
	}
	return printable.Line(c.Name)
}

// greeting is the Backend of the question whether agents are connected.
type greeting interface {
	// Clients returns the user's clients that are connected or were in the last hour, the last to call first. The owner
	// sees all.
	Clients(ctx context.Context) []SeenClient
}
