package page

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
	"toolfinch/trust/inbound"
	"toolfinch/trust/policy"
)

// Shown is a view. Its numbers count items that the user may use.
type Shown struct {
	Name, Path, Description string
	Root                    bool    // clients that name no view get this view
	Exposure                string  // how clients get its tools
	Tools                   int     // number of tools
	Tokens                  int     // tokens of a list of all tools
	Prompts, Resources      int     // Resources includes templates and skills
	Gated                   *Budget // nil: tools need no provisioning
	ReadOnly                bool    // the view has allow: read_only
}

// Budget bounds the tools provisioned at once in a gated view; 0 means no bound.
type Budget struct{ Tools, Tokens int }

// Access describes who may do what. Only Views is set for users other than the owner.
type Access struct {
	Mode      inbound.Mode
	TakesKeys bool
	Open      bool     // other machines reach toolfinch without any proof of identity
	Listen    string   // address of the HTTP listener
	Issuers   []string // issuers of access tokens
	Header    string   // header of a reverse proxy with the principal; "" for none
	Scopes    inbound.Scopes
	Views     []Shown
	Policies  []policy.By
	Texts     []policy.Text // policies as written, secrets masked
	Denied    map[string]int64
	Keys      []identity.Key
	KeyViews  []string // views that a key may be restricted to
	Rates     []Rate
	Limits    []*limit.Limit // limits that were reached
}

// Rate describes a rate limit.
type Rate struct {
	What string
	Hits int64
}

// guarding is the Backend of the screen Access.
type guarding interface {
	Access(ctx context.Context) (Access, error)
	// Ask returns the verdict of the policies. The error is an *identity.FieldError, or an error of the view.
	Ask(ctx context.Context, q policy.Question) (policy.Verdict, error)
	// MakeKey makes an API key and returns its text, which cannot be read again. Revoke revokes a key. Callers
	// check that the owner asks.
	MakeKey(ctx context.Context, wanted inbound.KeyRequest) (text string, key identity.Key, err error)
	Revoke(ctx context.Context, name string) error
}

var accessScreen = &screen{Path: "access", title: "Access", Menu: "Access", file: "access.html", show: showAccess, do: doAccess}

// access is the data of the template.
type access struct {
	Access
	Owner      bool
	Alone      bool                // nothing but the page is served over HTTP
	Me         *identity.Principal // principal of the user; nil for the owner
	Question   policy.Question
	Asked      bool
	Verdict    policy.Verdict
	Wrong      string // what is wrong with the question
	Wanted     inbound.KeyRequest
	WrongKey   string
	Made       string // text of the key that was just made
	MadeName   string
	Transports []string
	Kinds      []string
}

var transports = []string{identity.TransportHTTP, identity.TransportSSE, identity.TransportStdio, identity.TransportREST, identity.TransportUI}

var askKinds = []string{"tool", "prompt", "resource"}

func (q *request) access() (a access, err error) {
	a.Access, err = q.server.Backend.Access(q.Context())
	a.Owner, a.Alone, a.Me, a.Transports, a.Kinds = q.owner(), q.alone, identity.PrincipalOf(q.Context()), transports, askKinds
	a.Question.Transport = identity.TransportHTTP
	return a, err
}

func showAccess(q *request) (any, error) {
	a, err := q.access()
	if err != nil {
		return nil, err
	}
	if q.URL.Query().Has("about") && a.Owner {
		a.ask(q)
	}
	return a, nil
}

// ask has the policies answer the question in the query.
func (a *access) ask(q *request) {
	values := q.URL.Query()
	one := &a.Question
	*one = policy.Question{
		As: values.Get("as"), Groups: words(values.Get("groups")), Scopes: words(values.Get("scopes")), Client: values.Get("client"), Transport: values.Get("transport"),
		View: values.Get("of"), Arguments: strings.TrimSpace(values.Get("args")), Action: values.Get("action"),
	}
	switch values.Get("kind") {
	case "prompt":
		one.Prompt = values.Get("about")
	case "resource":
		one.Resource = values.Get("about")
	default:
		one.Tool = values.Get("about")
	}
	var err error
	if a.Verdict, err = q.server.Backend.Ask(q.Context(), *one); err != nil {
		a.Wrong = err.Error()
		return
	}
	a.Asked = true
}

// About and Kind are the name and kind of the item in the question.
func (a access) About() string { return a.Question.Tool + a.Question.Prompt + a.Question.Resource }
func (a access) Kind() string {
	switch {
	case a.Question.Prompt != "":
		return "prompt"
	case a.Question.Resource != "":
		return "resource"
	}
	return "tool"
}

// words splits a text at blanks and commas.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' })
}

func doAccess(q *request) (answer, error) {
	if !q.owner() {
		return answer{}, errOwner
	}
	backend := q.server.Backend
	switch do := q.PostForm.Get("do"); do {
	case "make":
		wanted := inbound.KeyRequest{
			Name: strings.TrimSpace(q.PostForm.Get("name")), View: q.PostForm.Get("of"), Lasts: strings.TrimSpace(q.PostForm.Get("expires")),
			Scopes: q.PostForm["scope"], Groups: words(q.PostForm.Get("groups")),
		}
		text, _, err := backend.MakeKey(q.Context(), wanted)
		var wrong string
		if _, filled := errors.AsType[*identity.FieldError](err); filled {
			wrong, err = err.Error(), nil
		}
		if err != nil {
			return answer{to: "access#keys"}, err
		}
		a, err := q.access()
		if err != nil {
			return answer{}, err
		}
		a.Wanted, a.WrongKey, a.Made, a.MadeName = wanted, wrong, text, wanted.Name
		if wrong == "" {
			a.Wanted = inbound.KeyRequest{}
		}
		return answer{data: a}, nil // no redirect, because the key is shown only once
	case "revoke":
		name := q.PostForm.Get("name")
		if err := backend.Revoke(q.Context(), name); err != nil {
			return answer{to: "access#keys"}, err
		}
		q.say(good, "revoked the key "+name+": what it had open ends, and its logins to servers do")
		return answer{to: "access#keys"}, nil
	default:
		return answer{}, refusef(http.StatusBadRequest, "this page does not do %q", do)
	}
}
