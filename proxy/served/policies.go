package served

import (
	"cmp"
	"context"
	"encoding/json"
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

// latest returns the view as it is served now: a tool may be called after its view was replaced.
func (v *View) latest() *View { return cmp.Or(v.run.Now().ByName[v.Name], v) }

// judge has policies decide about calls of t over the arguments that its server gets; nil
// without policies. The calls of the program's own user pass. The error is a *policy.DeniedError.
func (v *View) judge(t *tool.Tool) tool.Middleware {
	if v.policies == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if party, ofClient := identity.PartyOf(ctx); ofClient || !call.Local {
				_, decided := telemetry.Start(ctx, telemetry.StagePolicy, "")
				err := v.decide(ctx, t, call, party)
				if decided(err); err != nil {
					return nil, err
				}
			}
			return next(ctx, call)
		}
	}
}

func (v *View) decide(ctx context.Context, t *tool.Tool, call *tool.Call, party identity.Party) error {
	var decided policy.Decision
	for _, view := range v.viewsWith(t.Def.ID.Server) {
		request := v.request(party, t.Def, view)
		request.Arguments = call.Arguments
		if decided = v.policies.Decide(request); decided.Allow {
			break
		}
	}
	identity.Decide(ctx, decided.Trusted())
	if !decided.Allow {
		v.run.Denied(decided)
		return &policy.DeniedError{Name: call.Name, Decision: decided}
	}
	return nil
}

// limit has rate limits decide about calls of t; nil without limits. The calls of the
// program's own user pass. The error is a *rate.Error.
func (v *View) limit(t *tool.Tool) tool.Middleware {
	if v.limits == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if party, ofClient := identity.PartyOf(ctx); ofClient || !call.Local {
				end, err := v.limits.Begin(rate.Call{Principal: policy.UserOf(party), Server: t.Def.ID.Server, ID: t.Def.ID.String()}, time.Now())
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

// viewsWith returns the view, or the views with a server that it combines: something of no view in particular, as a
// resource that no server lists, is allowed if one of them allows it.
func (v *View) viewsWith(server string) []string {
	byName := v.run.Now().ByName
	all := slices.DeleteFunc(slices.Clone(v.combined), func(name string) bool { return !byName[name].contains(server) })
	if len(all) == 0 {
		return []string{v.Name}
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
			combines := v.combined != nil // its views are asked themselves
			return !combines && v.Has(id.Server) && !v.policies.May(v.request(party, def, v.Name))
		})
	}
}

// mayServer reports whether something of a server may be allowed that is not known yet, of one of the kinds, or of any.
func (v *View) mayServer(party identity.Party, server string, kinds ...tool.Kind) bool {
	return slices.ContainsFunc(v.viewsWith(server), func(view string) bool { return v.policies.MayServer(party, server, view, kinds...) })
}

// request is a request to use what is defined, of a view.
func (v *View) request(party identity.Party, def *tool.Def, view string) policy.Request {
	r := policy.Request{Party: party, Action: policy.ActionOf(def.ID.Kind), ID: def.ID, View: view, Annotations: def.Annotations}
	if def.ID.Kind != tool.KindTool {
		r.Annotations = tool.Annotations{ReadOnly: true}
	}
	if def.ID.Kind == tool.KindResource && def.Raw == nil {
		r.Template = v.templateOf(def.ID)
		for _, one := range v.latest().Catalog.Alike(def.ID) {
			r.Alike = append(r.Alike, policy.Alike{ID: one.ID, Template: v.templateOf(one.ID), Equal: one.Equal})
		}
	}
	return r
}

func (v *View) templateOf(id tool.ID) string {
	if t, ok := v.latest().Catalog.TemplateOf(id); ok && id.Kind == tool.KindResource {
		return t.Def.ID.String()
	}
	return ""
}

// Request is a request of a party to use something of the view: to call a tool, get a
// prompt, read a resource.
func (v *View) Request(party identity.Party, t *tool.Tool) policy.Request {
	return v.request(party, t.Def, cmp.Or(t.View, v.Name))
}

// Hidden finds what somebody named that the view has, and not for them. It counts that,
// and says what was decided.
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

// asked finds what a question is about.
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
