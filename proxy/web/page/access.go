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

// Shown is a view of the configuration.
type Shown struct {
	Name, Path, Description string
	Root                    bool    // it is what clients get who name none
	Exposure                string  // how its tools reach clients
	Tools                   int     // those that who asks may use, as the rest
	Tokens                  int     // that listing them all would cost
	Prompts, Resources      int     // templates among them
	Gated                   *Budget // nil: what is found may be called
	ReadOnly                bool    // allow: read_only
}

// Budget is what may be provisioned in a gated view at once; 0 is no bound.
type Budget struct{ Tools, Tokens int }

// Access is who may do what. But for the views, what stands here is for the owner alone.
type Access struct {
	Mode      inbound.Mode
	TakesKeys bool
	Open      bool     // other machines reach it, and nobody has to prove anything
	Listen    string   // where it listens
	Issuers   []string // of access tokens
	Header    string   // in which a reverse proxy names who asks; "" for none
	Scopes    inbound.Scopes
	Views     []Shown
	Policies  []policy.By
	Texts     []policy.Text // without secrets
	Denied    map[string]int64
	Keys      []identity.Key
	KeyViews  []string // that a key may be for
	Rates     []Rate
	Limits    []*limit.Limit // those that were reached
}

// Rate is a rate limit.
type Rate struct {
	What string
	Hits int64
}

// Backend of who may do what.
type guarding interface {
	Access(ctx context.Context) (Access, error)
	// Ask asks the policies. The error is a *identity.FieldError, or of the view.
	Ask(ctx context.Context, q policy.Question) (policy.Verdict, error)
	// MakeKey makes an API key and returns its text, which nobody gets again. Revoke revokes
	// one. Only the owner may.
	MakeKey(ctx context.Context, wanted inbound.KeyRequest) (text string, key identity.Key, err error)
	Revoke(ctx context.Context, name string) error
}

var accessScreen = &screen{Path: "access", title: "Access", Menu: "Access", file: "access.html", show: showAccess, do: doAccess}

// access is what the template shows.
type access struct {
	Access
	Owner      bool
	Me         *identity.Principal // who asks, where it is not the owner
	Question   policy.Question
	Asked      bool
	Verdict    policy.Verdict
	Wrong      string // with the question
	Wanted     inbound.KeyRequest
	WrongKey   string
	Made       string // the text of a new key
	MadeName   string
	Transports []string
	Kinds      []string
}

var transports = []string{identity.TransportHTTP, identity.TransportSSE, identity.TransportStdio, identity.TransportREST, identity.TransportUI}

var askKinds = []string{"tool", "prompt", "resource"}

func (q *request) access() (a access, err error) {
	a.Access, err = q.server.Backend.Access(q.Context())
	a.Owner, a.Me, a.Transports, a.Kinds = q.owner(), identity.PrincipalOf(q.Context()), transports, askKinds
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

// ask answers the question of the query.
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

// About and Kind are what the question is about.
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

// words are those of a text with spaces or commas between them.
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
		return answer{data: a}, nil // not after a redirect: the key is shown once
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
