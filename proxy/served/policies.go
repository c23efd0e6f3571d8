package served

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/trust/policy"
	"toolfinch/trust/rate"
)

// Policies and rate limits decide about everything of a view that clients can call, get or read. Steps of composite
// and custom tools act for the owner, so that nothing decides about them.

// judge has policies decide about calls of t over the arguments that its server gets; nil
// without policies. The calls of the program's own user pass. The error is a *policy.DeniedError.
func (r *rules) judge(t *tool.Tool) tool.Middleware {
	if r.policies == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if party, ofClient := identity.PartyOf(ctx); ofClient || !call.Local {
				_, decided := telemetry.Start(ctx, telemetry.StagePolicy, "")
				err := r.decide(ctx, t, call, party)
				if decided(err); err != nil {
					return nil, err
				}
			}
			return next(ctx, call)
		}
	}
}

func (r *rules) decide(ctx context.Context, t *tool.Tool, call *tool.Call, party identity.Party) error {
	in := r.latest()
	if in == nil && isUnlisted(t.Def) {
		return errNotServed
	}
	var decided policy.Decision
	for _, view := range r.viewsWith(t.Def.ID.Server) {
		request := requestIn(in, party, t.Def, view)
		request.Arguments = call.Arguments
		if decided = r.policies.Decide(request); decided.Allow {
			break
		}
	}
	identity.Decide(ctx, decided.Trusted())
	if !decided.Allow {
		r.run.Denied(decided)
		return &policy.DeniedError{Name: call.Name, Decision: decided}
	}
	return nil
}

// limit has rate limits decide about calls of t; nil without limits. The calls of the
// program's own user pass. The error is a *rate.Error.
func (r *rules) limit(t *tool.Tool) tool.Middleware {
	if r.limits == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if party, ofClient := identity.PartyOf(ctx); ofClient || !call.Local {
				end, err := r.limits.Begin(rate.Call{Principal: policy.UserOf(party), Server: t.Def.ID.Server, ID: t.Def.ID.String()}, time.Now())
				if err != nil {
					identity.Decide(ctx, identity.Decision{Policy: err.Error()})
					return nil, err
				}
				defer end()
			}
			return next(ctx, call)
		}
	}
}

// viewsWith returns the views whose policies decide about a server: the view, or the views with the server that it
// combines. A resource that no server lists is of no one view: it is allowed if one of the views allows it.
func (r *rules) viewsWith(server string) []string {
	byName := r.run.Now().ByName
	all := slices.DeleteFunc(slices.Clone(r.combined), func(name string) bool { return !byName[name].contains(server) })
	if len(all) == 0 {
		return []string{r.name}
	}
	return all
}

// MayDecide returns whether the maker of the request of ctx may use a definition, or the
// instructions of a server, in every view that has the server.
func (s *Served) MayDecide(ctx context.Context) func(tool.ID, json.RawMessage) bool {
	party, ofClient := identity.PartyOf(ctx)
	return func(id tool.ID, raw json.RawMessage) bool {
		if id.Kind == tool.KindInstructions || !ofClient || s.Config.Policies == nil {
			return true
		}
		def, err := tool.ParseKind(id.Kind, id.Server, raw)
		return err == nil && !slices.ContainsFunc(s.Views, func(v *View) bool {
			combines := v.combined != nil // the loop asks its views
			return !combines && v.Has(id.Server) && !v.policies.May(v.request(party, def, v.Name))
		})
	}
}

// mayServer reports whether policies may allow something unknown of a server, of one of the kinds or of any kind.
func (r *rules) mayServer(party identity.Party, server string, kinds ...tool.Kind) bool {
	return slices.ContainsFunc(r.viewsWith(server), func(view string) bool { return r.policies.MayServer(party, server, view, kinds...) })
}

// request returns the request to use a definition in a view.
func (v *View) request(party identity.Party, def *tool.Def, view string) policy.Request {
	return requestIn(cmp.Or(v.latest(), v), party, def, view)
}

// errNotServed is the error of a resource that no server lists, read through a view that was removed: templates, which
// policies may name, are known to views alone.
var errNotServed = errors.New("the view is not served any more")

// isUnlisted reports whether no server lists the resource of a definition.
func isUnlisted(def *tool.Def) bool { return def.ID.Kind == tool.KindResource && def.Raw == nil }

// requestIn returns the request to use a definition in a view; in finds the templates of resources that no server lists,
// and may be nil for everything else.
func requestIn(in *View, party identity.Party, def *tool.Def, view string) policy.Request {
	r := policy.Request{Party: party, Action: policy.ActionOf(def.ID.Kind), ID: def.ID, View: view, Annotations: def.Annotations}
	if def.ID.Kind != tool.KindTool {
		r.Annotations = tool.Annotations{ReadOnly: true}
	}
	if isUnlisted(def) {
		r.Template = in.templateOf(def.ID)
		for _, one := range in.Catalog.Alike(def.ID) {
			r.Alike = append(r.Alike, policy.Alike{ID: one.ID, Template: in.templateOf(one.ID), Equal: one.Equal})
		}
	}
	return r
}

func (v *View) templateOf(id tool.ID) string {
	if t, ok := v.Catalog.TemplateOf(id); ok && id.Kind == tool.KindResource {
		return t.Def.ID.String()
	}
	return ""
}

// Request returns the request of a party to call a tool, get a prompt or read a resource of the view.
func (v *View) Request(party identity.Party, t *tool.Tool) policy.Request {
	return v.request(party, t.Def, cmp.Or(t.View, v.Name))
}

// Hidden finds a tool, prompt or resource of the whole view that policies hide from the caller, counts the denial, and
// returns the decision.
func (v *View) Hidden(ctx context.Context, call *tool.Call, name string) (t *tool.Tool, decided policy.Decision) {
	if v.Whole == nil {
		return nil, decided
	}
	if t = v.Whole.named(name); t == nil {
		return nil, decided
	}
	party, _ := identity.PartyOf(ctx)
	request := v.Request(party, t)
	request.Arguments = call.Arguments
	if decided = v.policies.Decide(request); decided.Allow {
		return nil, decided
	}
	v.run.Denied(decided)
	return t, decided
}

// Ask asks policies about something of the view. The error is a *identity.FieldError.
func (v *View) Ask(policies *policy.Policies, q policy.Question) (policy.Verdict, error) {
	t, err := v.asked(q)
	if err != nil {
		return policy.Verdict{}, err
	}
	party, err := q.Party()
	if err != nil {
		return policy.Verdict{}, err
	}
	return q.Ask(policies, v.Request(party, t))
}

// asked finds the tool, prompt or resource of a question.
func (v *View) asked(q policy.Question) (*tool.Tool, error) {
	switch {
	case q.Tool != "":
		t, err := v.Find(q.Tool)
		if err == nil {
			return t, nil
		}
		hint := "toolfinch reindex asks the servers what they have"
		if near := v.Catalog.Nearest(q.Tool, 3); len(near) > 0 {
			hint = "nearest: " + strings.Join(near, ", ") + "; " + hint
		}
		return nil, &identity.FieldError{Text: fmt.Sprintf("the view knows no tool %q (%s)", q.Tool, hint)}
	case q.Prompt != "":
		if t, ok := v.Catalog.Prompt(q.Prompt); ok {
			return t, nil
		}
		return nil, &identity.FieldError{Text: fmt.Sprintf("the view knows no prompt %q", q.Prompt)}
	}
	if t, ok := v.Catalog.Resource(q.Resource); ok {
		return t, nil
	}
	return nil, &identity.FieldError{Text: fmt.Sprintf("no server of the view has the resource %q", q.Resource)}
}
