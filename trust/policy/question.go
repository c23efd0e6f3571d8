package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Question asks policies, for a person, whether a party may do something.
type Question struct {
	As             string // ID of the principal; "": anonymous
	Groups, Scopes []string
	Client         string // name of the program, and its version after a space
	Transport      string // a transport of package identity
	View           string
	// One of these names the thing, as clients call it; a tool may be server.tool.
	Tool, Prompt, Resource string
	Arguments              string // a JSON object, "" for none
	Action                 string // "": the usual action on the thing; else that, or search
}

// Party returns the party, or a *identity.FieldError.
func (q Question) Party() (identity.Party, error) {
	party := identity.Party{Transport: q.Transport}
	switch q.Transport {
	case identity.TransportStdio, identity.TransportHTTP, identity.TransportSSE, identity.TransportREST, identity.TransportUI:
	default:
		return party, &identity.FieldError{Field: "transport", Text: fmt.Sprintf(" is %q: choose stdio, http, sse, rest or ui", q.Transport)}
	}
	party.Client, party.Version, _ = strings.Cut(q.Client, " ")
	switch {
	case q.As != "":
		for _, group := range q.Groups {
			if !sameSource(q.As, group) {
				return party, &identity.FieldError{Field: "group", Text: fmt.Sprintf(" is %q, which is of another issuer than %s: write it as policies do, like key|bots for a key", group, q.As)}
			}
		}
		party.Principal = &identity.Principal{ID: q.As, Groups: q.Groups, Scopes: q.Scopes}
	case len(q.Groups) > 0:
		return party, &identity.FieldError{Field: "group", Text: " is of a principal: say of whom"}
	case len(q.Scopes) > 0:
		return party, &identity.FieldError{Field: "scope", Text: " is of a principal: say of whom"}
	}
	return party, nil
}

// sameSource reports whether a principal and a group may have the same source. Every "|" may end the source, because
// names may contain it.
func sameSource(principal, group string) bool {
	for i, sign := range principal {
		if sign == '|' && strings.HasPrefix(group, principal[:i+1]) {
			return true
		}
	}
	return false
}

// Ask adds the action and arguments to a view's request, and has policies decide. The error is a
// *identity.FieldError.
func (q Question) Ask(p *Policies, r Request) (Verdict, error) {
	if q.Arguments != "" && !json.Valid([]byte(q.Arguments)) {
		return Verdict{}, &identity.FieldError{Field: "args", Text: " is no JSON"}
	}
	switch action := Action(q.Action); action {
	case "", r.Action:
	case ActionSearch:
		r.Action = action
	default:
		return Verdict{}, &identity.FieldError{Field: "action", Text: fmt.Sprintf(" is %q: here it is %s or search", q.Action, r.Action)}
	}
	r.Arguments = json.RawMessage(q.Arguments)
	return Verdict{Action: r.Action, ID: r.ID, User: UserOf(r.Party), View: r.View, None: p == nil, Decision: p.Decide(r)}, nil
}

// Verdict is the answer to a Question.
type Verdict struct {
	Action     Action
	ID         tool.ID // of the thing
	User, View string
	None       bool // there are no policies
	Decision
}

// String returns the decision, with the policies that decided.
func (v Verdict) String() string {
	word := map[bool]string{true: "allowed", false: "denied"}[v.Allow]
	text := fmt.Sprintf("%s: %s %s", word, v.Action, v.ID)
	switch {
	case v.None:
		text += ": there are no policies"
	case len(v.By) == 0:
		text += ": no policy permits it"
	}
	for i, by := range v.By {
		text += map[bool]string{true: " by ", false: ", "}[i == 0] + by.Place()
		if by.Error != "" {
			text += ", which could not be evaluated: " + by.Error
		}
	}
	for _, by := range v.Failed {
		text += fmt.Sprintf("\n%s permits nothing: %s", by.Place(), by.Error)
	}
	return text
}

// Place returns the name and the position of a policy.
func (b By) Place() string {
	at := fmt.Sprintf("%s:%d", b.File, b.Line)
	if b.ID == at || b.File == "" {
		return b.ID
	}
	return fmt.Sprintf("%q (%s)", b.ID, at)
}

// MarshalJSON encodes the verdict for toolfinch policy test --json.
func (v Verdict) MarshalJSON() ([]byte, error) {
	type row struct {
		ID     string `json:"id"`
		File   string `json:"file,omitempty"`
		Line   int    `json:"line,omitempty"`
		Effect string `json:"effect"`
		Error  string `json:"error,omitempty"`
	}
	rows := func(all []By) []row {
		out := []row{}
		for _, by := range all {
			out = append(out, row{by.ID, by.File, by.Line, map[bool]string{true: "forbid", false: "permit"}[by.Forbid], by.Error})
		}
		return out
	}
	return json.Marshal(struct {
		Allowed bool   `json:"allowed"`
		Action  Action `json:"action"`
		ID      string `json:"id"`
		User    string `json:"user"`
		View    string `json:"view"`
		By      []row  `json:"by"`
		Failed  []row  `json:"failed"`
	}{v.Allow, v.Action, v.ID.String(), v.User, v.View, rows(v.By), rows(v.Failed)})
}

// Texts returns the source texts of the policies.
func (p *Policies) Texts() []Text {
	if p == nil {
		return nil
	}
	return p.texts
}

// Rules returns all policies, in the order of their texts.
func (p *Policies) Rules() (all []By) {
	if p == nil {
		return nil
	}
	for _, one := range p.all {
		all = append(all, one.By)
	}
	return all
}
