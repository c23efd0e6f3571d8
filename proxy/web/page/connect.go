package page

import (
	"net/http"
	"slices"
)

// Client is a program that toolfinch can be written into.
type Client struct {
	ID, Name  string
	File      string // as people write its path
	Found     bool   // it seems to be installed
	Connected bool
	Problem   string // why its file cannot be read
}

// Connection is how a client is to be connected.
type Connection struct {
	Client string // its ID
	HTTP   bool   // by the URL of this toolfinch; else the client starts one of its own
	View   string // "" for what is served where none is named
}

// Entry is what connects a client.
type Entry struct {
	Text    string   // its file, if that has toolfinch alone
	Command string   // that writes it; "" where toolfinch cannot
	Notes   []string // for the person who asks
}

// Connector says what toolfinch connect would write into the files of clients of the user who runs it.
type Connector interface {
	Clients() []Client
	// Views are the names that Connection.View may have.
	Views() []string
	Entry(c Connection) (Entry, error)
}

var connectScreen = &screen{Path: "connect", title: "Connect", Menu: "Connect", file: "connect.html", show: showConnect}

// connect is what the template shows.
type connect struct {
	Connection
	Entry
	Clients []Client
	One     *Client
	Views   []string
	Problem string // why there is no entry
}

// Title is the client's name.
func (c connect) Title() string {
	if c.One == nil {
		return ""
	}
	return c.One.Name
}

// connection is how a client is to be connected, as the query says.
func (q *request) connection() Connection {
	query := q.URL.Query()
	return Connection{Client: query.Get("client"), HTTP: query.Get("how") == "http", View: query.Get("view")}
}

func showConnect(q *request) (any, error) {
	by := q.server.Connector
	if by == nil || !q.owner() {
		return connect{}, nil
	}
	c := connect{Connection: q.connection(), Clients: by.Clients(), Views: by.Views()}
	if c.Client == "" {
		return c, nil
	}
	at := slices.IndexFunc(c.Clients, func(one Client) bool { return one.ID == c.Client })
	if at < 0 {
		return nil, &problem{http.StatusNotFound, "there is no such client"}
	}
	c.One = &c.Clients[at]
	var err error
	if c.Entry, err = by.Entry(c.Connection); err != nil {
		c.Problem = err.Error()
	}
	return c, nil
}
