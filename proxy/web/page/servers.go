package page

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"toolfinch/tool"
)

// StateDisabled is the state of a server that the configuration switches off. All other states are an upstream.State.
const StateDisabled = "disabled"

// Upstream is a server in the list of servers.
type Upstream struct {
	Name, Description string
	State             string
	Since             time.Time
	Error             string    // why the server is not ready, or, while it starts, why it failed last
	Failed            time.Time // when that was
	Era, Transport    string
	Tools             int
	Held              int // definitions that wait for approval
	MayLogIn          bool
	LeftOut, Mended   int // numbers of malformed definitions
	Restarts          int
	PID               int      // 0 without a process, or unless the owner asks
	Stderr            []string // last lines on standard error; only for the owner
}

// Details is the data for the page of one server. Runs to Changes are set only for the owner.
type Details struct {
	Upstream
	Version      string // as the server states it
	Instructions string
	Runs         string // command line without secrets
	URL          string // URL without secrets
	Cwd          string
	Variables    []string // names of the configured environment variables
	Sandbox      string   // what the process may access
	Changes      string   // what happens to definitions that the server changes
	Listed       time.Time
	Login        *Login   // nil if the server needs no login
	Hidden       []string // names of tools that the configuration hides from all views
	CanSwitch    bool     // the server is in the configuration file
}

// Login is the state of the user's login to a server.
type Login struct {
	In      bool
	Issuer  string
	Expires time.Time
	Renewed bool
	// URL is where the user continues a login that has begun; "" for none. Code is the code to type in there.
	URL, Code string
	May       bool // the user may begin a login
}

// ErrNoServer is wrapped by the error for a server that the user may not know, or that does not exist.
var ErrNoServer = errors.New("there is no such server")

// fleet is the Backend of the servers.
type fleet interface {
	// Servers returns the servers that the user may know, in configured order. For the owner, disabled servers follow.
	Servers(ctx context.Context) []Upstream
	// Server returns one of these servers. The error wraps ErrNoServer.
	Server(ctx context.Context, name string) (Details, error)
	// Reconnect connects to a server again and lists it.
	Reconnect(ctx context.Context, name string) error
	// Switch switches a server on or off in the configuration file, and waits a moment until the new configuration is
	// served. Callers check that the owner asks.
	Switch(ctx context.Context, name string, on bool) error
	// LogIn logs in, or begins the login if the user must confirm it. LogOut ends a login.
	LogIn(ctx context.Context, name string) error
	LogOut(ctx context.Context, name string) error
}

var serversScreen = &screen{Path: "servers", title: "Servers", Menu: "Servers", file: "servers.html", show: showServers, do: doServers, badge: serversBadge}

// serversBadge counts the servers that failed or need a login.
func serversBadge(q *request) badge { return troubled(q.server.Backend.Servers(q.Context())) }

func troubled(all []Upstream) badge {
	login, failed := 0, 0
	for _, s := range all {
		switch s.State {
		case "needs_login":
			login++
		case "failed":
			failed++
		}
	}
	var said []string
	if failed > 0 {
		said = append(said, count(failed)+" failed")
	}
	if login > 0 {
		said = append(said, plural(login, "login")+" needed")
	}
	return badge{failed + login, strings.Join(said, ", ")}
}

// servers is the data of the template: all servers, or the server One.
type servers struct {
	All   []Upstream
	One   *Details
	Owner bool
	File  string // name of the configuration file; "" unless the owner asks
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
	do := q.PostForm.Get("do")
	if do == "reconnect" && q.PostForm.Get("back") == "list" {
		to.to = "servers"
	}
	switch {
	case q.PostForm.Has("show"):
		if !q.owner() {
			return to, errOwner
		}
		shown := q.PostForm.Get("show")
		err, done = backend.Hide(q.Context(), tool.ID{Server: name, Name: shown}, false), shown+" is shown again"
	case do == "reconnect":
		err, done = backend.Reconnect(q.Context(), name), name+" is restarted"
	case do == "enable" || do == "disable":
		if !q.owner() {
			return to, errOwner
		}
		err, done = backend.Switch(q.Context(), name, do == "enable"), name+" is "+do+"d in the configuration"
	case do == "login":
		err = backend.LogIn(q.Context(), name)
	case do == "logout":
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
