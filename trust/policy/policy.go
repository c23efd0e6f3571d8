// Package policy owns the decisions about who may do what: policies in the Cedar language (cedarpolicy.com), and the
// facts about a request that they read. It reads no files, knows no transport and keeps nothing: Policies are
// compiled once and never change.
package policy

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Action is an operation that policies permit or forbid.
type Action string

// The actions: ActionCall a tool, ActionGet a prompt, ActionRead a resource, a template or a skill. ActionSearch shows one of
// these in lists and search results.
const (
	ActionSearch Action = "search"
	ActionCall   Action = "call"
	ActionRead   Action = "read"
	ActionGet    Action = "get"
)

var actions = []string{string(ActionSearch), string(ActionCall), string(ActionRead), string(ActionGet)}

// ActionOf returns the action that uses things of a kind.
func ActionOf(kind tool.Kind) Action {
	switch kind {
	case tool.KindPrompt:
		return ActionGet
	case tool.KindResource, tool.KindTemplate, tool.KindSkill:
		return ActionRead
	}
	return ActionCall
}

// Users without a proof. The parent process of a server on stdio runs as its owner; an HTTP client could be anybody.
const (
	Owner     = "stdio|owner"
	Anonymous = "anonymous"
)

// UserOf returns the User of a party. The User of a key is its name, which the owner chooses.
func UserOf(p identity.Party) string {
	switch {
	case p.Principal != nil:
		return identity.Label(p.Principal.ID)
	case p.Transport == identity.TransportStdio:
		return Owner
	}
	return Anonymous
}

// Policies decide about requests. Nil allows everything. The methods are safe for concurrent use.
type Policies struct {
	texts    []Text
	all      rules
	possible rules // all, weakened: the arguments of a call are unknown
	someday  rules // all, weakened: only the server and view of a tool are known
	users    map[string]bool
	groups   map[string]bool
	things   []types.EntityUID // tools, prompts, resources, templates and skills that policies name
	named    []Named
	reads    reads
	claims   rules               // each comparison of the client or of scopes, as a permit of its own
	members  map[string][]string // names of arguments that policies read, by their folds
}

// Named is a server or a view that a policy names.
type Named struct {
	Type, Name string // "Server" or "View"
	At         *Error // its position; no message
}

// Named returns the servers and views that policies name.
func (p *Policies) Named() []Named {
	if p == nil {
		return nil
	}
	return p.named
}

// Asks reports whether a policy reads an argument of this name.
func (p *Policies) Asks(argument string) bool {
	return p != nil && slices.Contains(p.members[fold(argument)], argument)
}

// ReadClient reports whether a policy reads the client's name or version.
func (p *Policies) ReadClient() bool { return p != nil && p.reads.client }

// reads says what the conditions of policies read. scopes counts only if a condition compares scopes with the
// requested thing.
type reads struct{ args, scopes, transport, client bool }

// rules are compiled policies. The ID of a policy is its index.
type rules []rule

type rule struct {
	*cedar.Policy
	By
}

// All implements cedar.PolicyIterator.
func (r rules) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for i, one := range r {
			if !yield(cedar.PolicyID(strconv.Itoa(i)), one.Policy) {
				return
			}
		}
	}
}

func (r rules) by(id cedar.PolicyID) rule {
	i, _ := strconv.Atoi(string(id))
	return r[i]
}

// Request is an action of a party on a thing.
type Request struct {
	Party  identity.Party
	Action Action
	// ID names a tool, prompt, resource or template of the view View.
	ID   tool.ID
	View string
	// Template is the template of an unlisted resource, "" for none.
	Template string
	// Alike are other resources that the server may take an unlisted resource for.
	Alike       []Alike
	Annotations tool.Annotations
	Arguments   json.RawMessage // of a call or a prompt, as the server gets them
}

// Alike is another resource that a request may mean: a forbid of it forbids the request.
type Alike struct {
	ID       tool.ID
	Template string // as in Request
	Equal    bool   // it must also be permitted
}

// By is a policy that took part in a decision.
type By struct {
	ID     string // its @id, else FILE:LINE
	File   string // name of its file, as the user would write it
	Line   int    // from 1
	Forbid bool
	Error  string // why it could not be evaluated, "" if it could
}

// Decision is the answer of policies to a request.
type Decision struct {
	Allow bool
	// By are the policies that decided; none if no policy permits the request.
	By []By
	// Failed are permits that could not be evaluated, and so permit nothing.
	Failed []By
}

// Policy names the policies that decided, "" for none.
func (d Decision) Policy() string {
	var ids []string
	for _, by := range d.By {
		ids = append(ids, by.ID)
	}
	return strings.Join(ids, ", ")
}

// Trusted returns the decision for the audit log.
func (d Decision) Trusted() identity.Decision {
	return identity.Decision{Allow: d.Allow, Policy: d.Policy()}
}

// Decide decides about a request: a policy must permit it, and none may forbid it. A forbid that cannot be evaluated,
// because an argument is missing or has another type, also forbids: otherwise the sender of the arguments could evade
// it.
func (p *Policies) Decide(r Request) Decision {
	if p == nil {
		return Decision{Allow: true}
	}
	var arguments types.Value = types.Record{}
	if p.reads.args {
		record, err := valueOf(r.Arguments, p.members)
		if err != nil {
			return Decision{By: []By{{ID: "arguments", Forbid: true, Error: err.Error()}}}
		}
		arguments = record
	}
	return p.all.decide(r, arguments)
}

// May reports whether a request could be allowed with any arguments. If not, the requested thing is neither listed
// nor found.
func (p *Policies) May(r Request) bool {
	return p == nil || p.possible.decide(r, types.Record{}).Allow
}

// MayServer reports whether any tool, prompt, resource or template of a server could be allowed, before the server
// has listed them. If kinds are given, only these kinds count.
func (p *Policies) MayServer(party identity.Party, server, view string, kinds ...tool.Kind) bool {
	if p == nil {
		return true
	}
	may := func(id tool.ID) bool {
		return p.someday.decide(Request{Party: party, Action: ActionOf(id.Kind), ID: id, View: view}, types.Record{}).Allow
	}
	for kind, of := range typesByKind {
		if len(kinds) > 0 && !slices.Contains(kinds, kind) {
			continue
		}
		if may(tool.ID{Server: server, Kind: kind}) {
			return true
		}
		for _, thing := range p.things {
			if name, ok := strings.CutPrefix(string(thing.ID), server+"."); ok && thing.Type == of && may(tool.ID{Server: server, Name: name, Kind: kind}) {
				return true
			}
		}
	}
	return false
}

func (r rules) decide(request Request, arguments types.Value) Decision {
	decided := r.decideOne(request, arguments)
	for _, one := range request.Alike {
		if !decided.Allow {
			break
		}
		request.ID, request.Template = one.ID, one.Template
		if d := r.decideOne(request, arguments); !d.Allow && (one.Equal || len(d.By) > 0) {
			decided = d
		}
	}
	return decided
}

// ask asks the library about a request, without its Alike.
func (r rules) ask(request Request, arguments types.Value) (cedar.Decision, cedar.Diagnostic) {
	known := entitiesOf(request)
	return cedar.Authorize(r, known, cedar.Request{
		Principal: known.user.UID, Action: types.NewEntityUID(typeAction, types.String(request.Action)), Resource: known.resource.UID,
		Context: contextOf(request, arguments),
	})
}

// decideOne decides about a request, without its Alike.
func (r rules) decideOne(request Request, arguments types.Value) Decision {
	allowed, why := r.ask(request, arguments)
	d := Decision{Allow: allowed == cedar.Allow}
	for _, failed := range why.Errors {
		one := r.by(failed.PolicyID).By
		one.Error = failed.Message
		if one.Forbid && d.Allow {
			d.Allow, why.Reasons = false, nil
		}
		if one.Forbid {
			d.By = append(d.By, one)
		} else {
			d.Failed = append(d.Failed, one)
		}
	}
	for _, reason := range why.Reasons {
		d.By = append(d.By, r.by(reason.PolicyID).By)
	}
	return d
}

const (
	typeUser     = "User"
	typeGroup    = "Group"
	typeTool     = "Tool"
	typePrompt   = "Prompt"
	typeResource = "Resource"
	typeTemplate = "Template"
	typeSkill    = "Skill"
	typeServer   = "Server"
	typeView     = "View"
	typeAction   = "Action"
)

var typesByKind = map[tool.Kind]types.EntityType{
	tool.KindTool: typeTool, tool.KindPrompt: typePrompt, tool.KindResource: typeResource, tool.KindTemplate: typeTemplate,
	tool.KindSkill: typeSkill,
}

// entities are the user and the resource of a request.
type entities struct{ user, resource types.Entity }

// Get implements types.EntityGetter.
func (e *entities) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case e.user.UID:
		return e.user, true
	case e.resource.UID:
		return e.resource, true
	}
	return types.Entity{}, false
}

func entitiesOf(r Request) *entities {
	e := &entities{
		user: types.Entity{UID: types.NewEntityUID(typeUser, types.String(UserOf(r.Party)))},
		resource: types.Entity{
			UID: types.NewEntityUID(typesByKind[r.ID.Kind], types.String(r.ID.String())),
			Attributes: types.NewRecord(types.RecordMap{
				attributeName: types.String(r.ID.Name), attributeServer: types.String(r.ID.Server),
			}),
		},
	}
	parents := []types.EntityUID{types.NewEntityUID(typeServer, types.String(r.ID.Server)), types.NewEntityUID(typeView, types.String(r.View))}
	if r.Template != "" {
		parents = append(parents, types.NewEntityUID(typeTemplate, types.String(r.Template)))
	}
	e.resource.Parents = types.NewEntityUIDSet(parents...)
	var scopes []types.Value
	if p := r.Party.Principal; p != nil {
		groups := make([]types.EntityUID, len(p.Groups))
		for i, group := range p.Groups {
			groups[i] = types.NewEntityUID(typeGroup, types.String(group))
		}
		e.user.Parents = types.NewEntityUIDSet(groups...)
		for _, scope := range p.Scopes {
			scopes = append(scopes, types.String(scope))
		}
	}
	e.user.Attributes = types.NewRecord(types.RecordMap{attributeScopes: types.NewSet(scopes...)})
	return e
}

// Attributes that policies may read, beside a tool's annotations.
const (
	attributeName    = "name"
	attributeServer  = "server"
	attributeScopes  = "scopes"
	attributeArgs    = "args"
	attributeClient  = "client"
	attributeVersion = "version"
	attributeVia     = "transport"
)

func contextOf(r Request, arguments types.Value) types.Record {
	return types.NewRecord(types.RecordMap{
		attributeArgs: arguments,
		"readOnly":    types.Boolean(r.Annotations.ReadOnly), "destructive": types.Boolean(!r.Annotations.ReadOnly && r.Annotations.Destructive),
		"idempotent": types.Boolean(r.Annotations.Idempotent), "openWorld": types.Boolean(r.Annotations.OpenWorld),
		attributeClient: types.NewRecord(types.RecordMap{
			attributeName: types.String(r.Party.Client), attributeVersion: types.String(r.Party.Version),
		}),
		attributeVia: types.String(r.Party.Transport),
	})
}

// Class is equal for parties that the policies cannot tell apart, for any request; it is "" without policies. A
// client's name and version count only by the comparisons in policies that hold, so that a client with a thousand
// names belongs to few classes. The same is true of scopes, unless policies compare them with the requested thing.
func (p *Policies) Class(party identity.Party) string {
	if p == nil {
		return ""
	}
	var known rawjson.Object
	if user := UserOf(party); p.users[user] {
		known.AddText("user", user)
	}
	if who := party.Principal; who != nil {
		known.Add("groups", rawjson.Of(slices.DeleteFunc(slices.Sorted(slices.Values(who.Groups)), func(group string) bool { return !p.groups[group] })))
		if p.reads.scopes {
			known.Add("scopes", rawjson.Of(slices.Sorted(slices.Values(who.Scopes))))
		}
	}
	if len(p.claims) > 0 {
		known.Add("claims", rawjson.Of(p.claimed(party)))
	}
	if p.reads.transport {
		known.AddText("transport", party.Transport)
	}
	return string(known.JSON())
}

// claimed returns the IDs of the claims that hold for a party, then of the claims that cannot be evaluated.
func (p *Policies) claimed(party identity.Party) []string {
	_, why := p.claims.ask(Request{Party: party}, types.Record{})
	claimed := make([]string, 0, len(why.Reasons)+len(why.Errors))
	for _, holds := range why.Reasons {
		claimed = append(claimed, string(holds.PolicyID))
	}
	for _, failed := range why.Errors {
		claimed = append(claimed, "!"+string(failed.PolicyID))
	}
	return claimed
}

// DeniedError is the error of a use that policies deny. Models read its text, so it does not name the policies. A
// client gets it only for things that it may see.
type DeniedError struct {
	Name     string // as the client wrote it
	Decision Decision
}

func (e *DeniedError) Error() string {
	return printable.Line(rawjson.Clip(e.Name, maxName)) + " is not allowed with these arguments"
}

// maxName bounds the part of a name that an error repeats, in bytes.
const maxName = 128
