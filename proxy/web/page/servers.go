package page

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// StateDisabled is the state of a server that the configuration switches off; the others
// are those of an upstream.State.
const StateDisabled = "disabled"

// Upstream is a server as the list shows it.
type Upstream struct {
	Name, Description string
	State             string
	Since             time.Time
	Error             string // why it is not ready
	Era, Transport    string
	Tools             int
	Held              int // definitions that wait for approval
	LeftOut, Mended   int // malformed definitions
	Restarts          int
	PID               int      // of its process; 0 for none, and for others than the owner
	Stderr            []string // its last lines, for the owner
}

// Details are what the page of one server shows beside. Fields of how it is started are
// for the owner.
type Details struct {
	Upstream
	Version      string // as the server says itself
	Instructions string
	Runs         string // the command line, without secrets
	URL          string // likewise
	Cwd          string
	Variables    []string // names of what its environment gets
	Sandbox      string   // what its process may touch
	Changes      string   // what becomes of definitions that it changes
	Listed       time.Time
	Login        *Login // nil where it needs none
	CanSwitch    bool   // it is in the file of the configuration
}

// Login is how it stands with logging in to a server.
type Login struct {
	In      bool
	Issuer  string
	Expires time.Time
	Renewed bool
	// URL is where a login that has begun goes on; "" for none. Code is what is typed in there.
	URL, Code string
	May       bool // who asks may begin one
}

// ErrNoServer is wrapped by the error for a name that no server has, for who asks.
var ErrNoServer = errors.New("there is no such server")

// Backend of the servers.
type fleet interface {
	// Servers are those that who asks may know of, in configured order; disabled ones come
	// last, for the owner.
	Servers(ctx context.Context) []Upstream
	// Server returns one of them. The error wraps ErrNoServer.
	Server(ctx context.Context, name string) (Details, error)
	// Reconnect connects to a server anew and lists it.
	Reconnect(ctx context.Context, name string) error
	// Switch switches a server on or off, in the file of the configuration, and waits a
	// moment until that is served. Only the owner may.
	Switch(ctx context.Context, name string, on bool) error
	// LogIn begins a login, or gets one where nobody has to be asked; LogOut ends it.
	LogIn(ctx context.Context, name string) error
	LogOut(ctx context.Context, name string) error
}

var serversScreen = &screen{Path: "servers", title: "Servers", Menu: "Servers", file: "servers.html", show: showServers, do: doServers}

// servers is what the template shows: all, or one.
type servers struct {
	All   []Upstream
	One   *Details
	Owner bool
	File  string // of the configuration, where the owner asks
}

func (s servers) Title() string {
	if s.One == nil {
		return ""
	}
	return s.One.Name
}

func showServers(q *request) (any, error) {
	backend := q.server.Backend
	s := servers{Owner: q.owner(), File: backend.Sums(q.Context()).Configuration}
	name := q.URL.Query().Get("name")
	if name == "" {
		s.All = backend.Servers(q.Context())
		return s, nil
	}
	one, err := backend.Server(q.Context(), name)
	switch {
	case errors.Is(err, ErrNoServer):
		return nil, &problem{http.StatusNotFound, err.Error()}
	case err != nil:
		return nil, err
	}
	s.One = &one
	return s, nil
}

func doServers(q *request) (answer, error) {
	backend, name := q.server.Backend, q.URL.Query().Get("name")
	to := answer{to: "servers" + query(q)}
	var err error
	done := ""
	switch do := q.PostForm.Get("do"); do {
	case "reconnect":
		err, done = backend.Reconnect(q.Context(), name), "connected to "+name+" anew"
	case "enable", "disable":
		if !q.owner() {
			return to, errOwner
		}
		err, done = backend.Switch(q.Context(), name, do == "enable"), name+" is "+do+"d in the configuration"
	case "login":
		err = backend.LogIn(q.Context(), name)
	case "logout":
		err, done = backend.LogOut(q.Context(), name), "logged out of "+name
	default:
		return to, refusef(http.StatusBadRequest, "this page does not do %q", do)
	}
	if errors.Is(err, ErrNoServer) {
		return to, &problem{http.StatusNotFound, err.Error()}
	}
	if err == nil && done != "" {
		q.say(good, done)
	}
	return to, err
}
