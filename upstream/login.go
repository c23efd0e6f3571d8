package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/login"
)

// beginWithin bounds how long a call waits for the URL of its login.
const beginWithin = 5 * time.Second

// openFor bounds how long a repeated call waits for its user, who has opened the page.
const openFor = 2 * time.Minute

// errNobody refuses an anonymous call of a server to which each principal logs in alone.
var errNobody = errors.New("it is used with a login of one's own (per_user), and nobody has proved who makes this call: set auth or principal_header")

// perUser reports whether each principal logs in to the server alone.
func (s *server) perUser() bool { return s.login != nil && s.settings.Login.PerUser }

// principal returns the principal whose login a call uses; "" for the login of this
// process.
func (s *server) principal(call *tool.Call) string {
	if !s.perUser() {
		return ""
	}
	return call.Principal
}

// hasLogin reports whether connections for a principal have a login.
func (s *server) hasLogin(ctx context.Context, principal string) bool {
	return s.login != nil && s.login.Has(ctx, principal)
}

// needsLogin begins the login that a call needs, and returns the error for the caller: the
// client opens the page if it can, or the text names the page. Only the owner may begin a
// login that all callers share, because another caller would make all use his account.
func (s *server) needsLogin(of *call, r *request, needed *login.Needed) error {
	told := *needed
	if s.principal(of.Call) == "" && !of.ofOwner() {
		return &told
	}
	ctx, cancel := context.WithTimeout(of.ctx, leeway.Of(beginWithin))
	defer cancel()
	pending, err := s.login.Begin(ctx, s.principal(of.Call))
	if err != nil {
		if told.Why != "" {
			told.Why += "; "
		}
		told.Why += "it cannot be begun here: " + err.Error()
		return &told
	}
	told.URL = pending.URL()
	if code := pending.UserCode(); code != "" {
		told.URL += " and type in " + code
	} else if of.opensURLs(r) {
		return s.open(of, r, pending, &told)
	}
	return &told
}

// ofOwner reports whether the owner of this process probably makes the call: by a command,
// as the parent process, or anonymously on this machine.
func (c *call) ofOwner() bool {
	if _, ofClient := identity.PartyOf(c.ctx); c.Local && !ofClient {
		return true
	}
	if c.Principal != "" {
		return false
	}
	from, _ := identity.SourceOf(c.ctx)
	if from.Transport == identity.TransportStdio {
		return true
	}
	address, err := netip.ParseAddr(from.Address)
	return err == nil && address.IsLoopback()
}

// opensURLs reports whether the client of the call opens pages for its user and then repeats
// the call.
func (c *call) opensURLs(r *request) bool {
	client := c.Client
	return client != nil && r.def != nil && c.Depth == 0 && !r.declined &&
		rawjson.Member(rawjson.Member(client.Capabilities, tool.CapabilityElicitation), "url") != nil
}

// open returns the error that makes the client open the page of a login (2025-11-25, URL
// mode elicitation). A legacy client is notified when the login is done.
func (s *server) open(of *call, r *request, pending *login.Pending, needed *login.Needed) error {
	key, id := of.Client.Key, pending.ID()
	elicitation := rawjson.NewObject(512)
	elicitation.AddText("mode", "url")
	elicitation.AddText("elicitationId", id)
	elicitation.AddText("url", pending.URL())
	elicitation.AddText("message", "Log in to "+s.settings.Name+" in your browser, then go on.")
	r.asksLogin = &askedLogin{needed.Mark(), id}
	if s.env.events.Notify != nil && !of.Client.Modern && pending.First(key) {
		s.work.Go(func() {
			select {
			case <-pending.Done():
				if pending.Err() == nil {
					s.env.events.Notify(key, "notifications/elicitation/complete", rawjson.Of(map[string]string{"elicitationId": id}))
				}
			case <-s.life.Done():
			}
		})
	}
	data := append(append(json.RawMessage(`{"elicitations":[`), elicitation.JSON()...), "]}"...)
	return &tool.RPCError{Code: tool.CodeURLElicitation, Message: "upstream " + s.settings.Name + ": " + needed.Error(), Data: data}
}

// afterLogin delays the repetition of a call whose client was asked to open the page of a
// login: until the user has logged in, or at once if the user declines. The login may have
// begun in another process.
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
	select { // a renewed old token does not end the wait
	case <-pending.Done():
	case <-ctx.Done():
	}
}
