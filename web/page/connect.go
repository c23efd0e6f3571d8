package page

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"toolfinch/transport"
)

// Client is a program that toolfinch can be written into.
type Client struct {
	ID, Name  string
	File      string // as people write its path
	Found     bool   // it seems to be installed
	Connected bool
	CanEdit   bool
	Problem   string // why its file cannot be read
}

// Connection is how a client is to be connected.
type Connection struct {
	Client string // its ID
	HTTP   bool   // by the URL of this toolfinch; else the client starts one of its own
	View   string // "" for what is served where none is named
	Only   bool   // the client's other servers leave its file
	Undo   bool   // what was written is taken out again
}

// Edit is what connecting changes in the file of a client, before it is done.
type Edit struct {
	Lines   []EditLine
	Notes   []string // for the person who asks
	Nothing bool     // nothing changes
	// Digest names the change: one that would be another by now is refused.
	Digest string
}

// EditLine is a line of a change: its sign is "+", "-", or "" for what is beside.
type EditLine struct{ Sign, Text string }

// Connector writes toolfinch into the files of clients of the user who runs it.
type Connector interface {
	Clients() []Client
	// Views are the names that Connection.View may have.
	Views() []string
	// Entry is what stands in the file of a client that has toolfinch alone.
	Entry(c Connection) (text string, notes []string, err error)
	// Plan says what would be changed, and Connect changes it.
	Plan(c Connection) (Edit, error)
	Connect(ctx context.Context, c Connection, digest string) (done string, err error)
}

var connectScreen = &screen{Path: "connect", title: "Connect", Menu: "Connect", file: "connect.html", show: showConnect, do: doConnect}

// connect is what the template shows.
type connect struct {
	Connection
	Clients   []Client
	One       *Client
	Views     []string
	Entry     string
	Notes     []string
	Problem   string // why there is no entry
	May       bool   // the files are this user's, and who asks may have them written
	Plan      *Edit
	PlanError string
	Undo      *Edit
}

// Title is the client's name.
func (c connect) Title() string {
	if c.One == nil {
		return ""
	}
	return c.One.Name
}

// here reports whether the browser is on this machine, and no reverse proxy before it. One on
// this machine may add no header of its own and put its own name into Host: the browser still
// says where it believes to be.
func (q *request) here() bool {
	address, err := netip.ParseAddr(sourceOf(q).Address)
	if err != nil || !address.IsLoopback() || !transport.IsLoopback(q.Host) {
		return false
	}
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"} {
		if q.Header.Get(name) != "" {
			return false
		}
	}
	for _, name := range []string{"Origin", "Referer"} {
		if at := q.Header.Get(name); at != "" {
			if u, err := url.Parse(at); err != nil || !transport.IsLoopback(u.Host) {
				return false
			}
		}
	}
	return true
}

// connection is how a client is to be connected, as the query says.
func (q *request) connection() Connection {
	query := q.URL.Query()
	return Connection{Client: query.Get("client"), HTTP: query.Get("how") == "http", View: query.Get("view"), Only: query.Get("only") != ""}
}

func showConnect(q *request) (any, error) {
	by := q.server.Connector
	if by == nil || !q.owner() {
		return connect{}, nil
	}
	c := connect{Connection: q.connection(), Clients: by.Clients(), Views: by.Views(), May: q.here()}
	if c.Client == "" {
		return c, nil
	}
	at := slices.IndexFunc(c.Clients, func(one Client) bool { return one.ID == c.Client })
	if at < 0 {
		return nil, &problem{http.StatusNotFound, "there is no such client"}
	}
	c.One = &c.Clients[at]
	var err error
	if c.Entry, c.Notes, err = by.Entry(c.Connection); err != nil {
		c.Problem = err.Error()
	}
	if !c.May || !c.One.CanEdit {
		return c, nil
	}
	if plan, err := by.Plan(c.Connection); err != nil {
		c.PlanError = err.Error()
	} else {
		c.Plan = &plan
	}
	if undo, err := by.Plan(Connection{Client: c.Client, Undo: true}); err == nil && !undo.Nothing {
		c.Undo = &undo
	}
	return c, nil
}

func doConnect(q *request) (answer, error) {
	by := q.server.Connector
	switch {
	case !q.owner():
		return answer{}, errOwner
	case by == nil || !q.here():
		return answer{}, refusef(http.StatusForbidden, "files are written only for a browser on this machine: run toolfinch connect there")
	}
	c := q.connection()
	c.Undo = q.PostForm.Get("do") == "undo"
	done, err := by.Connect(q.Context(), c, q.PostForm.Get("digest"))
	if err == nil {
		q.say(good, strings.TrimSpace(done))
	}
	return answer{to: "connect" + query(q)}, err
}
