package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/login"
)

// beginWithin bounds how long a call waits to learn where its login goes on.
const beginWithin = 5 * time.Second

// openFor is how long a call waits for its user, who has said that the page is open.
const openFor = 2 * time.Minute

func (p *Pool) loginTo(s Settings) *login.Server { return LoginTo(p.logins, s) }

// LoginTo is what logs in to the server of settings; nil where its headers say who we
// are, or nothing is to.
func LoginTo(logins *login.Logins, s Settings) *login.Server {
	if logins == nil || s.URL == "" || s.Login.Off {
		return nil
	}
	for name := range s.Headers {
		if strings.EqualFold(name, "Authorization") {
			return nil
		}
	}
	return logins.Server(s.Name, s.URL, s.Login)
}

// errNobody is about a server that everybody logs in to alone.
var errNobody = errors.New("it is used with a login of one's own (per_user), and nobody has proved who makes this call: set auth or principal_header")

// perUser reports whether each principal logs in to the server alone.
func (s *server) perUser() bool { return s.login != nil && s.settings.Login.PerUser }

// principal is whose login a call uses: its own where each has one, else that of this
// process.
func (s *server) principal(call *tool.Call) string {
	if !s.perUser() {
		return ""
	}
	return call.Principal
}

// needsLogin is the error of a call that needs a login, which is begun: its user is asked
// to open a page where the client can do that, and is told where it is otherwise. One that all
// share is the owner's: it is not begun for others.
func (d *delivery) needsLogin(c *connection, needed *login.Needed) error {
	s := d.server
	if len(needed.Scopes) == 0 && s.principal(d.call.Call) == "" { // otherwise it is this call's, or this caller's
		s.health.exchanged(needed)
		if c != nil && c.main {
			c.Fail(needed) // so that it is connected anew when somebody has logged in
		}
	}
	told := *needed
	if s.principal(d.call.Call) == "" && !d.ofOwner() {
		return d.fail(&told) // another would have all use an account of his own
	}
	ctx, cancel := context.WithTimeout(d.call.ctx, leeway.Of(beginWithin))
	defer cancel()
	pending, err := s.login.Begin(ctx, s.principal(d.call.Call))
	if err != nil {
		if told.Why != "" {
			told.Why += "; "
		}
		told.Why += "it cannot be begun here: " + err.Error()
		return d.fail(&told)
	}
	told.URL = pending.URL()
	if code := pending.UserCode(); code != "" {
		told.URL += " and type in " + code
	} else if d.opensURLs() {
		return d.open(pending, &told)
	}
	return d.fail(&told)
}

// ofOwner reports whether the owner of this process makes the call, as far as that can be
// known: a command, the parent process, or who proves nothing on this machine.
func (d *delivery) ofOwner() bool {
	if _, ofClient := identity.PartyOf(d.call.ctx); d.call.Local && !ofClient {
		return true
	}
	if d.call.Principal != "" {
		return false
	}
	from, _ := identity.SourceOf(d.call.ctx)
	if from.Transport == identity.TransportStdio {
		return true
	}
	address, err := netip.ParseAddr(from.Address)
	return err == nil && address.IsLoopback()
}

// opensURLs reports whether the client of the call opens pages for its user, and calls
// again after that.
func (d *delivery) opensURLs() bool {
	client := d.call.Client
	return client != nil && d.def != nil && d.call.Depth == 0 && !d.declined &&
		rawjson.Member(rawjson.Member(client.Capabilities, tool.CapabilityElicitation), "url") != nil
}

// open is the error that has the client open the page of a login (2025-11-25, URL mode
// elicitation). It is told when that is done.
func (d *delivery) open(pending *login.Pending, needed *login.Needed) error {
	s, key, id := d.server, d.call.Client.Key, pending.ID()
	one := rawjson.NewObject(512)
	one.AddText("mode", "url")
	one.AddText("elicitationId", id)
	one.AddText("url", pending.URL())
	one.AddText("message", "Log in to "+s.settings.Name+" in your browser, then go on.")
	d.asksLogin = &askedLogin{needed.Mark(), id}
	if s.events.Notify != nil && !d.call.Client.Modern && pending.First(key) {
		s.work.Go(func() {
			select {
			case <-pending.Done():
				if pending.Err() == nil {
					s.events.Notify(key, "notifications/elicitation/complete", rawjson.Of(map[string]string{"elicitationId": id}))
				}
			case <-s.life.Done():
			}
		})
	}
	data := append(append(json.RawMessage(`{"elicitations":[`), one.JSON()...), "]}"...)
	return &tool.RPCError{Code: tool.CodeURLElicitation, Message: "upstream " + s.settings.Name + ": " + needed.Error(), Data: data}
}

// afterLogin is a call that its client makes again, having been asked to open the page of
// a login: it waits until the user has logged in, unless the user does not want to. The login may
// have begun in another process.
func (s *server) afterLogin(ctx context.Context, r *request, call *tool.Call, asked askedLogin) {
	for _, response := range rawjson.Members(r.responses) {
		if action := rawjson.Text(rawjson.Member(response, "action")); action != "" && action != "accept" {
			r.declined = true
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openFor)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	principal := s.principal(call)
	pending := s.login.Pending(principal)
	if pending == nil || pending.ID() != asked.ID {
		_ = s.login.Await(ctx, principal, asked.Mark, asked.ID)
		return
	}
	select { // a token that is only renewed does not do
	case <-pending.Done():
	case <-ctx.Done():
	}
}
