package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/login"
)

// startPage is part of the URL of every login: nobody is told the page of the authorization server.
const startPage = "/oauth/callback?login="

// guarded is a pool with one server that wants logins, which is a server of the Go SDK.
type guarded struct {
	as   *authserver.Server
	rs   *authserver.Protected
	pool *Pool
	// beside is another process with the same vault and keys: a pool like the first.
	beside func(login.Vault) *Pool
	vault  *authserver.Vault
	logins *login.Logins // of the last pool
}

func newGuarded(t *testing.T, modern bool, s login.Settings, events Events) *guarded {
	t.Helper()
	opaque := true
	as := authserver.New(t, authserver.Settings{Clients: []authserver.Client{authserver.Inspector}, Now: authserver.Now{Opaque: &opaque}})
	s.AllowPrivate = true // over pipes
	g := &guarded{as: as, rs: authserver.Protect(t, as, modern), vault: authserver.NewVault()}
	g.beside = func(vault login.Vault) *Pool {
		anybody := func(http.ResponseWriter, *http.Request, login.Start) bool { return true }
		logins := login.New(login.Options{Vault: vault, Prove: anybody})
		t.Cleanup(logins.Close)
		g.logins = logins
		return newPoolOf(t, Options{Logins: logins, Events: events, Key: [32]byte{1}}, Settings{Name: "notes", URL: g.rs.At(), Login: s})
	}
	g.pool = g.beside(g.vault)
	return g
}

// logIn logs a user in as what the principal is.
func (g *guarded) logIn(t *testing.T, principal, user string) {
	t.Helper()
	g.as.Set(t, authserver.Now{User: user})
	pending := must.Get(g.pool.Login("notes").Begin(t.Context(), principal))(t)
	g.as.Browse(t, pending.URL(), "")
	await.Value(t, pending.Done())
	must.Do(t, pending.Err())
}

func (g *guarded) whoami(t *testing.T, call *tool.Call) (string, error) {
	t.Helper()
	return g.from(t, identity.Source{Transport: identity.TransportStdio}, call)
}

// from is a call that comes from there.
func (g *guarded) from(t *testing.T, source identity.Source, call *tool.Call) (string, error) {
	t.Helper()
	call.Arguments = json.RawMessage(`{}`)
	result, err := g.pool.Call(identity.WithSource(t.Context(), source), def("notes", "whoami"), call)
	return string(result), err
}

func (g *guarded) is(t *testing.T, call *tool.Call, user string) {
	t.Helper()
	if result, err := g.whoami(t, call); err != nil || !strings.Contains(result, `"`+user+`"`) {
		t.Errorf("whoami = %s, %v; want %s", result, err, user)
	}
}

func TestAServerThatWantsALoginIsNotAskedAgain(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) {
			g := newGuarded(t, modern, login.Settings{}, Events{})
			changes, _ := watched(t, g.pool)
			first := await.Value(t, changes)
			if needed, ok := errors.AsType[*login.Needed](first.Err); !ok || !strings.Contains(needed.Error(), "run `toolfinch server login notes`") {
				t.Fatalf("the change is %v", first.Err)
			}
			if s := g.pool.Status()[0]; s.State != StateLogin || s.Err == nil || strings.Contains(s.Err.Error(), " 401") {
				t.Errorf("the state is %s, %v", s.State, s.Err)
			}
			result, err := g.whoami(t, &tool.Call{})
			if err == nil || !strings.Contains(err.Error(), startPage) {
				t.Errorf("the call: %s, %v", result, err)
			}
			// All would be who logs in, so somebody who is not the owner is not told where.
			remote, local := identity.Source{Transport: identity.TransportHTTP, Address: "192.0.2.1"}, identity.Source{Transport: identity.TransportREST, Address: "127.0.0.1"}
			for _, one := range []struct {
				name  string
				from  identity.Source
				call  *tool.Call
				owner bool
			}{
				{"who has proved to be somebody", local, &tool.Call{Principal: "key|ci"}, false},
				{"nobody, elsewhere", remote, &tool.Call{}, false},
				{"nobody, elsewhere, whose client opens pages", remote, &tool.Call{Client: browses("c", modern)}, false},
				{"nobody, from an address that is not known", identity.Source{Transport: identity.TransportHTTP}, &tool.Call{}, false},
				{"nobody, on this machine", local, &tool.Call{}, true},
				{"a command", identity.Source{Transport: "command"}, &tool.Call{Local: true}, true},
				{"nobody, on this machine, by IPv6", identity.Source{Transport: identity.TransportHTTP, Address: "::1"}, &tool.Call{}, true},
			} {
				if _, err := g.from(t, one.from, one.call); !errors.As(err, new(*login.Needed)) || strings.Contains(err.Error(), startPage) != one.owner {
					t.Errorf("the call of %s: %v", one.name, err)
				}
			}
			if s := g.pool.Status()[0]; s.State != StateLogin || strings.Contains(s.Err.Error(), startPage) {
				t.Errorf("all are told where the login that was begun goes on: %v", s.Err)
			}
			if change := g.pool.Refresh(t.Context(), "notes"); change.Err == nil || strings.Contains(change.Err.Error(), startPage) {
				t.Errorf("whoever lists the server is told where the login goes on: %v", change.Err)
			}
			g.logIn(t, "", "alice")
			for change := first; change.Err != nil || len(change.Defs) == 0; {
				change = await.Value(t, changes)
			}
			g.is(t, &tool.Call{}, "alice")
			if s := g.pool.Status()[0]; s.State != StateReady {
				t.Errorf("the state is %s, %v", s.State, s.Err)
			}

			// What was good is so no more: neither the token nor what would renew it.
			if _, _, err := g.pool.Login("notes").Logout(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if _, err := g.whoami(t, &tool.Call{}); !errors.As(err, new(*login.Needed)) {
				t.Errorf("the call: %v", err)
			}
			if s := g.pool.Status()[0]; s.State != StateLogin {
				t.Errorf("the state is %s, %v", s.State, s.Err)
			}
			g.logIn(t, "", "bob")
			await.True(t, func() bool { return g.pool.Status()[0].State == StateReady })
			g.is(t, &tool.Call{}, "bob")
		})
	}
}

// browses is a client that opens pages for its user.
func browses(key string, modern bool) *tool.Client {
	return &tool.Client{Key: key, Modern: modern, Capabilities: json.RawMessage(`{"elicitation":{"url":{}}}`)}
}

func TestALegacyClientOpensThePageOfALogin(t *testing.T) {
	completed := make(chan string, 4)
	g := newGuarded(t, false, login.Settings{}, Events{Notify: func(key, method string, params json.RawMessage) {
		completed <- key + " " + method + " " + rawjson.Text(rawjson.Member(params, "elicitationId"))
	}})
	var id string
	for range 2 { // the second joins the login that the first has begun
		_, err := g.whoami(t, &tool.Call{Client: browses("c", false)})
		rpc, ok := errors.AsType[*tool.RPCError](err)
		if !ok || rpc.Code != tool.CodeURLElicitation {
			t.Fatalf("the error is %v", err)
		}
		var data struct {
			Elicitations []struct{ Mode, ElicitationID, URL, Message string }
		}
		if err := json.Unmarshal(rpc.Data, &data); err != nil || len(data.Elicitations) != 1 {
			t.Fatalf("the data is %s", rpc.Data)
		}
		one := data.Elicitations[0]
		if one.Mode != "url" || !strings.Contains(one.URL, startPage) || !strings.Contains(one.Message, "notes") || id != "" && one.ElicitationID != id {
			t.Errorf("the elicitation is %+v", one)
		}
		id = one.ElicitationID
		if len(completed) > 0 {
			t.Error("it is over before it was done")
		}
		if id != "" && t.Failed() {
			return
		}
	}
	g.logIn(t, "", "alice")
	if told := await.Value(t, completed); told != "c notifications/elicitation/complete "+id {
		t.Errorf("the client was told %q", told)
	}
	g.is(t, &tool.Call{Client: browses("c", false)}, "alice")
	if len(completed) > 0 {
		t.Error("the client was told twice")
	}
}

func TestAModernClientOpensThePageOfALogin(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy server", true: "modern server"}[modern], func(t *testing.T) {
			g := newGuarded(t, modern, login.Settings{}, Events{})
			ask := func() json.RawMessage {
				result := must.Get(g.whoami(t, &tool.Call{Client: browses("a", true)}))(t)
				return json.RawMessage(result)
			}
			again := func(asked json.RawMessage, action string) (string, error) {
				params := `{"name":"whoami","arguments":{},"inputResponses":{"url1":{"action":"` + action + `"}},"requestState":` + string(rawjson.Member(asked, "requestState")) + `}`
				return g.whoami(t, &tool.Call{Client: browses("b", true), Params: json.RawMessage(params)})
			}
			asked := ask()
			request := rawjson.Member(rawjson.Member(asked, "inputRequests"), "url1")
			if rawjson.Text(rawjson.Member(asked, "resultType")) != "input_required" || rawjson.Text(rawjson.Member(request, "method")) != "elicitation/create" ||
				rawjson.Text(rawjson.Member(rawjson.Member(request, "params"), "mode")) != "url" {
				t.Fatalf("the result is %s", asked)
			}
			if result, err := again(asked, "decline"); !errors.As(err, new(*login.Needed)) {
				t.Errorf("a user who does not want to: %s, %v", result, err)
			}
			asked = ask()
			answered := make(chan string, 1)
			go func() {
				result, err := again(asked, "accept")
				if err != nil {
					result = err.Error()
				}
				answered <- result
			}()
			g.logIn(t, "", "alice")
			if result := await.Value(t, answered); !strings.Contains(result, `"alice"`) {
				t.Errorf("the call went on with %s", result)
			}
		})
	}
}

// looking is a vault that tells when it is looked into.
type looking struct {
	login.Vault
	into chan struct{}
}

func (l looking) Get(ctx context.Context, name string) ([]byte, error) {
	select {
	case l.into <- struct{}{}:
	default:
	}
	return l.Vault.Get(ctx, name)
}

// The call that a client makes again may come to another replica than the one where the login began,
// which may have begun one, too, that nobody finishes. It waits for the login, and for its end where the
// user says no.
func TestACallThatIsMadeAgainElsewhereWaitsForTheLogin(t *testing.T) {
	for name, test := range map[string]struct{ one, no bool }{
		"it has begun none": {}, "it has begun one": {one: true}, "the user says no": {no: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, true, login.Settings{}, Events{})
			g.as.Set(t, authserver.Now{User: "alice", Deny: &test.no})
			into := make(chan struct{}, 1)
			other := g.beside(looking{g.vault, into})
			call := func(pool *Pool, params string) string {
				result, err := pool.Call(identity.WithSource(t.Context(), identity.Source{Transport: identity.TransportStdio}), def("notes", "whoami"),
					&tool.Call{Client: browses("a", true), Arguments: json.RawMessage(`{}`), Params: json.RawMessage(params)})
				if err != nil {
					return err.Error()
				}
				return string(result)
			}
			asked := json.RawMessage(call(g.pool, ""))
			pending := g.pool.Login("notes").Pending("")
			if test.one {
				call(other, "")
			}
			select {
			case <-into:
			default:
			}
			answered := make(chan string, 1)
			go func() {
				answered <- call(other, `{"name":"whoami","arguments":{},"inputResponses":{"url1":{"action":"accept"}},"requestState":`+string(rawjson.Member(asked, "requestState"))+`}`)
			}()
			await.Value(t, into) // it waits
			browser := authserver.NewBrowser()
			back, _, _ := strings.Cut(pending.URL(), "?")
			answer, err := browser.Get(g.as.BrowseIn(t, browser, pending.URL(), back).String()) // 400 where the user says no
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			await.Value(t, pending.Done())
			want := `"alice"`
			if test.no {
				g.logins.Ended(pending.ID()) // as replicas tell
				want = "elicitation/create"  // it is asked anew
			}
			if result := await.Value(t, answered); !strings.Contains(result, want) {
				t.Errorf("the call went on with %s", result)
			}
		})
	}
}

// What a server says by itself is for nobody any more once its login has ended, wherever that was.
func TestALogoutElsewhereEndsTheConnection(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) {
			g := newGuarded(t, modern, login.Settings{}, Events{})
			g.logIn(t, "", "alice")
			changes, _ := watched(t, g.pool)
			if first := await.Value(t, changes); first.Err != nil {
				t.Fatal(first.Err)
			}
			is := func(state State) func() bool { return func() bool { return g.pool.Health()[0].State == state } }
			await.True(t, is(StateReady))
			g.pool.LoginChanged("")
			g.is(t, &tool.Call{}, "alice")
			if s := g.pool.Status()[0]; s.State != StateReady || s.Restarts > 0 {
				t.Errorf("after a change of a login that stays it is %s, and was connected anew %d times", s.State, s.Restarts)
			}
			if _, _, err := g.beside(g.vault).Login("notes").Logout(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			g.pool.LoginChanged("")
			await.True(t, is(StateLogin))
		})
	}
}

func TestEachUserHasALoginOfTheirOwn(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) {
			g := newGuarded(t, modern, login.Settings{PerUser: true}, Events{})
			of := func(principal string, client *tool.Client) *tool.Call {
				return &tool.Call{Principal: principal, Client: client}
			}
			g.logIn(t, "", "owner")
			if change := g.pool.Refresh(t.Context(), "notes"); change.Err != nil || len(change.Defs) != 1 {
				t.Fatalf("the list: %v", change.Err)
			}
			if _, err := g.whoami(t, of("idp|ann", nil)); !errors.As(err, new(*login.Needed)) {
				t.Errorf("a user without a login: %v; the owner's must not be used", err)
			}
			if s := g.pool.Status()[0]; s.State != StateReady {
				t.Errorf("the state is %s, because a user has no login", s.State)
			}
			if _, err := g.whoami(t, of("", nil)); err == nil || errors.As(err, new(*login.Needed)) || !strings.Contains(err.Error(), "per_user") {
				t.Errorf("nobody: %v", err)
			}
			g.logIn(t, "idp|ann", "ann")
			g.logIn(t, "idp|bob", "bob")
			asking := json.RawMessage(`{"elicitation":{},"roots":{}}`)
			for _, client := range []*tool.Client{
				nil, {Key: "one"}, {Key: "one", Modern: true}, {Key: "two", Capabilities: asking}, {Key: "three", Modern: true, Capabilities: asking},
			} {
				g.is(t, of("idp|ann", client), "ann")
				g.is(t, of("idp|bob", client), "bob")
				g.is(t, of("idp|ann", client), "ann")
			}
			g.is(t, &tool.Call{Local: true}, "owner")
			if err := g.pool.Subscribe(t.Context(), "notes", "note://1"); err == nil {
				t.Error("a subscription was made with the owner's login")
			}
			connected := func(principal string) bool {
				return slices.ContainsFunc(g.pool.now.Load().byName["notes"].sharing.connectors(), func(l *connector) bool { return l.principal == principal && l.current() != nil })
			}
			if !connected("idp|ann") || !connected("idp|bob") {
				t.Fatal("a user has no connection")
			}
			if _, _, err := g.pool.Login("notes").Logout(t.Context(), "idp|ann"); err != nil {
				t.Fatal(err)
			}
			g.pool.LoginChanged("")
			await.True(t, func() bool { return !connected("idp|ann") })
			if !connected("idp|bob") || !connected("") {
				t.Error("a connection with another login has ended")
			}
			if _, err := g.whoami(t, of("idp|ann", nil)); !errors.As(err, new(*login.Needed)) {
				t.Errorf("a user who has logged out: %v", err)
			}
			g.is(t, of("idp|bob", nil), "bob")
		})
	}
}

func TestACallThatNeedsMoreScopes(t *testing.T) {
	g := newGuarded(t, true, login.Settings{}, Events{})
	if _, err := g.whoami(t, &tool.Call{}); !errors.As(err, new(*login.Needed)) {
		t.Fatal(err)
	}
	g.logIn(t, "", "alice")
	g.is(t, &tool.Call{}, "alice")
	g.rs.Wants("mcp:write")
	_, err := g.whoami(t, &tool.Call{})
	if needed, ok := errors.AsType[*login.Needed](err); !ok || !strings.Contains(err.Error(), "mcp:write") || needed.URL == "" {
		t.Fatalf("the call: %v", err)
	}
	if s := g.pool.Status()[0]; s.State != StateReady {
		t.Errorf("the state is %s, because one call needs more", s.State)
	}
	g.logIn(t, "", "alice")
	g.is(t, &tool.Call{}, "alice")
}

func TestAServerThatWantsMoreScopesToConnectIsLeftAlone(t *testing.T) {
	g := newGuarded(t, true, login.Settings{}, Events{})
	g.logIn(t, "", "alice")
	g.rs.Wants("mcp:write")
	changes, _ := watched(t, g.pool)
	if needed, ok := errors.AsType[*login.Needed](await.Value(t, changes).Err); !ok || len(needed.Scopes) != 1 {
		t.Fatalf("the change is %v", needed)
	}
	g.logIn(t, "", "alice")
	if change := await.Value(t, changes); change.Err != nil { // and no other before it
		t.Fatal(change.Err)
	}
	if n := len(g.rs.Seen()); n > 20 {
		t.Errorf("%d requests", n)
	}
}
