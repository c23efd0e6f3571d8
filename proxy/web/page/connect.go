package page

import (
	"net/http"
	"slices"
)

// Client is a program. toolfinch can add itself to the program's file.
type Client struct {
	ID, Name  string
	File      string // path of that file, as people write it
	Found     bool   // seems to be installed
	Connected bool
	Problem   string // why the file cannot be read
}

// Connection says how to connect a client.
type Connection struct {
	Client string // ID of the client
	HTTP   bool   // call the URL of this toolfinch; else the client starts toolfinch serve
	View   string // "" for the default
}

// Entry is the text that connects a client.
type Entry struct {
	Text    string   // content of a file that has only toolfinch
	Command string   // command that writes the entry; "" if toolfinch cannot write it
	Notes   []string // notes for the user
}

// Connector says what toolfinch connect would write into the files of clients, for the user that runs it.
type Connector interface {
	Clients() []Client
	// Views returns the possible values of Connection.View.
	Views() []string
	Entry(c Connection) (Entry, error)
}

var connectScreen = &screen{Path: "connect", title: "Connect", Menu: "Connect", file: "connect.html", show: showConnect}

// connect is the data of the template.
type connect struct {
	Connection
	Entry
	Alone   bool // nothing but the page is served over HTTP
	Clients []Client
	One     *Client
	Views   []string
	Problem string // why there is no entry
}

func (c connect) Title() string {
	if c.One == nil {
		return ""
	}
	return c.One.Name
}

func (q *request) connection() Connection {
	query := q.URL.Query()
	return Connection{Client: query.Get("client"), HTTP: query.Get("how") == "http" && !q.alone, View: query.Get("view")}
}

func showConnect(q *request) (any, error) {
	by := q.server.Connector
	if by == nil || !q.owner() {
		return connect{Alone: q.alone}, nil
	}
	c := connect{Alone: q.alone, Connection: q.connection(), Clients: by.Clients(), Views: by.Views()}
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
