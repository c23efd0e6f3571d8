package retrieve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// ErrNotGated is returned by views without a gate.
var ErrNotGated = gate.ErrNotGated

// Bounds of the arguments of provision_tools.
const (
	maxTTL     = 365 * 24 * time.Hour
	maxRequest = 1_000_000_000 // tokens
	maxIDs     = 1000          // also of unprovision_tools
)

// ProvisionRequest holds the arguments of provision_tools: IDs or a Query, not both.
type ProvisionRequest struct {
	IDs       []string `json:"tool_ids,omitempty"` // names as Catalog.Find takes them, at most 1,000; all of them are provisioned, or none
	Query     string   `json:"query,omitempty"`    // provisions the best tools for it that fit the budget
	Limit     int      `json:"limit,omitempty"`    // of a query: bound on the tools, 1 to MaxLimit; 0 for Settings.TopK
	MaxTokens int      `json:"max_tokens,omitempty"`
	// TTL is how long the tools stay, at most the view's TTL, which 0 also means. See gate.Request for tools that
	// are already provisioned.
	TTL time.Duration `json:"-"`
}

// ProvisionedTool describes in answers a tool that is, was, or would be provisioned.
type ProvisionedTool struct {
	ToolID     string          `json:"tool_id"` // the name clients see
	Tokens     int             `json:"tokens"`  // of the definition
	ExpiresAt  time.Time       `json:"expires_at,omitzero"`
	Definition json.RawMessage `json:"definition,omitempty"` // as in lists
}

// ProvisionAnswer is the answer of provision_tools.
type ProvisionAnswer struct {
	Provisioned []ProvisionedTool `json:"provisioned"`           // with definitions; includes tools provisioned before
	DidNotFit   []ProvisionedTool `json:"did_not_fit,omitempty"` // of a query
	Confident   *bool             `json:"confident,omitempty"`   // of a query; false: perhaps no tool is right, and none is provisioned
	Nearest     []ProvisionedTool `json:"nearest,omitempty"`     // tools found by a query that is not confident
	Note        string            `json:"note,omitempty"`        // what to do if the query is not confident
	Unmentioned []string          `json:"unmentioned,omitempty"` // things that the query names and no tool mentions
	Missing     []string          `json:"missing,omitempty"`     // absent servers, and why
	gate.State
}

// UnprovisionAnswer is the answer of unprovision_tools.
type UnprovisionAnswer struct {
	Unprovisioned  []ProvisionedTool `json:"unprovisioned"`
	NotProvisioned []string          `json:"not_provisioned,omitempty"` // named tools that were not provisioned
	gate.State
}

// ProvisionList is the answer of list_provisioned, in the order in which tools
// were provisioned.
type ProvisionList struct {
	Provisioned []ProvisionedTool `json:"provisioned"`
	gate.State
}

// noteUnsure is the note of an answer that is not confident.
const noteUnsure = "Nothing is provisioned, because perhaps no tool does this. " +
	"If one of nearest does, provision it by tool_ids; else ask in other words."

// Provision provisions tools for the maker of the call. For a query it takes the best tools that fit the budget and
// names the rest; if the query is not confident, it takes none. Errors are ErrNotGated, *args.Error and
// *gate.BudgetError; after an error nothing has changed.
func (p *provisioner) Provision(ctx context.Context, call *tool.Call, q ProvisionRequest) (ProvisionAnswer, error) {
	if !p.gated() {
		return ProvisionAnswer{}, ErrNotGated
	}
	if err := p.checkProvision(&q); err != nil {
		return ProvisionAnswer{}, err
	}
	request := gate.Request{Fit: q.Query != "", MaxTokens: q.MaxTokens, TTL: q.TTL, Has: p.catalog.has, Session: call.Session}
	var answer ProvisionAnswer
	var err error
	if request.Fit {
		found, searchErr := p.search.Search(ctx, Query{Text: q.Query, Limit: q.Limit})
		if searchErr != nil {
			return answer, searchErr
		}
		p.search.noteFound(call, q.Query, found.Hits)
		answer.Confident, answer.Unmentioned, answer.Missing = found.confident(), found.Unmentioned, described(found.Absent)
		for _, hit := range found.Hits {
			request.Tools = append(request.Tools, hit.Tool)
		}
		if !*answer.Confident {
			return p.unsure(call.Owner(), answer, request.Tools), nil
		}
	} else if request.Tools, err = p.toolsOf(q.IDs); err != nil {
		return answer, err
	}
	done, err := p.gate.Provision(ctx, call.Owner(), request)
	switch {
	case errors.Is(err, tool.ErrNotFound): // the tool has gone since the look-up
		return answer, &args.Error{Problem: err.Error()}
	case err != nil:
		return answer, err
	}
	answer.Provisioned = p.described(append(done.Added, done.Kept...), true)
	if len(done.Left) > 0 {
		answer.DidNotFit = p.described(done.Left, false)
	}
	answer.State = done.State
	return answer, nil
}

// unsure completes the answer to a query that is not confident: the nearest tools, and none provisioned.
func (p *provisioner) unsure(owner string, answer ProvisionAnswer, found []*tool.Tool) ProvisionAnswer {
	answer.Provisioned = []ProvisionedTool{}
	for _, t := range found {
		answer.Nearest = append(answer.Nearest, ProvisionedTool{ToolID: t.Name, Tokens: p.catalog.Tokens(t)})
	}
	answer.Note = noteUnsure
	_, answer.State = p.gate.Provisions(owner, p.catalog.has)
	return answer
}

func (p *provisioner) checkProvision(q *ProvisionRequest) error {
	q.Query = strings.TrimSpace(q.Query)
	q.Limit = cmp.Or(q.Limit, p.topK)
	switch {
	case len(q.IDs) > 0 && q.Query != "":
		return args.Refuse("send tool_ids or query, not both")
	case len(q.IDs) == 0 && q.Query == "":
		return args.Refuse("send tool_ids, as %s answered them, or a query: in a few words what the tools should do", DiscoverTools)
	case q.Limit < 1 || q.Limit > MaxLimit:
		return args.Refuse("limit must be a whole number from 1 to %d", MaxLimit)
	case q.MaxTokens < 0:
		return args.Refuse("max_tokens must be a whole number from 1")
	case q.TTL < 0 || q.TTL > maxTTL:
		return args.Refuse("ttl_seconds must be a whole number from 1 to %d", maxTTL/time.Second)
	}
	return nil
}

// Unprovision takes tools from the maker of the call: the tools with the IDs, or all if ids is nil. The answer
// names IDs that were not provisioned. Errors are ErrNotGated and, for an unknown ID, *args.Error; after an error
// nothing has changed.
func (p *provisioner) Unprovision(ctx context.Context, call *tool.Call, ids []string) (UnprovisionAnswer, error) {
	if !p.gated() {
		return UnprovisionAnswer{}, ErrNotGated
	}
	var tools []*tool.Tool
	var named []tool.ID // nil: all
	if ids != nil {
		var err error
		if tools, err = p.toolsOf(ids); err != nil {
			return UnprovisionAnswer{}, err
		}
		named = make([]tool.ID, len(tools))
	}
	for i, t := range tools {
		named[i] = t.Def.ID
	}
	owner := call.Owner()
	removed, err := p.gate.Unprovision(ctx, owner, named)
	if err != nil {
		return UnprovisionAnswer{}, err
	}
	answer := UnprovisionAnswer{Unprovisioned: p.described(removed, false)}
	for _, t := range tools {
		if !slices.ContainsFunc(removed, func(p tool.Provisioned) bool { return p.ID == t.Def.ID }) {
			answer.NotProvisioned = append(answer.NotProvisioned, t.Name)
		}
	}
	_, answer.State = p.gate.Provisions(owner, p.catalog.has)
	return answer, nil
}

// Provisions returns the tools provisioned for the maker of the call. The error is ErrNotGated.
func (p *provisioner) Provisions(call *tool.Call) (ProvisionList, error) {
	if !p.gated() {
		return ProvisionList{}, ErrNotGated
	}
	now, state := p.gate.Provisions(call.Owner(), p.catalog.has)
	return ProvisionList{p.described(now, false), state}, nil
}

// has reports whether the catalog has a tool.
func (c *Catalog) has(id tool.ID) bool {
	_, ok := c.ByID(id)
	return ok
}

// described describes tools for an answer, with definitions if whole is set.
func (p *provisioner) described(all []tool.Provisioned, whole bool) []ProvisionedTool {
	out := []ProvisionedTool{}
	for _, kept := range all {
		t, ok := p.catalog.ByID(kept.ID)
		if !ok {
			continue // a newer catalog has it
		}
		described := ProvisionedTool{ToolID: t.Name, Tokens: kept.Tokens, ExpiresAt: kept.Until.UTC().Truncate(time.Second)}
		if whole {
			described.Definition = t.Listed()
		}
		out = append(out, described)
	}
	return out
}

// maxUnknown bounds the unknown IDs that an error names.
const maxUnknown = 5

// toolsOf returns the tools with these IDs, each once. The error is an *args.Error that names unknown IDs, or says
// that there are too many.
func (p *provisioner) toolsOf(ids []string) ([]*tool.Tool, error) {
	if len(ids) > maxIDs {
		return nil, args.Refuse("tool_ids has %d IDs, more than %d: send fewer at a time", len(ids), maxIDs)
	}
	tools := []*tool.Tool{}
	seen := make(map[string]bool, len(ids))
	var unknown []string
	for _, id := range ids {
		t, ok := p.catalog.find(id)
		key := id
		if ok {
			key = t.Name
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		switch {
		case ok:
			tools = append(tools, t)
		case len(unknown) < maxUnknown:
			unknown = append(unknown, unknownID(p.catalog, id, p.search.absent())+p.catalog.held.because(id))
		}
	}
	if len(unknown) > 0 {
		return nil, &args.Error{Problem: strings.Join(unknown, "\n")}
	}
	return tools, nil
}

// ParseProvision reads the arguments of provision_tools. Its errors are
// *args.Errors.
func (p *provisioner) ParseProvision(arguments json.RawMessage) (ProvisionRequest, error) {
	var q ProvisionRequest
	var seconds int
	err := args.Read(ProvisionTools, arguments,
		args.Texts("tool_ids", &q.IDs),
		args.Text("query", &q.Query),
		args.Int("limit", &q.Limit, 1, MaxLimit),
		args.Int("max_tokens", &q.MaxTokens, 1, maxRequest),
		args.Hidden(args.Int("context_tokens", &q.MaxTokens, 1, maxRequest)), // the name that older servers use
		args.Int("ttl_seconds", &seconds, 1, int(maxTTL/time.Second)),
	)
	q.TTL = time.Duration(seconds) * time.Second
	return q, err
}

// gated reports whether clients must provision tools before they call them.
func (p *provisioner) gated() bool { return p.gate != nil && p.gate.Gated() }

// callable returns a predicate for the tools that the maker of the call has provisioned. The view must be gated.
func (p *provisioner) callable(call *tool.Call) func(*tool.Tool) bool {
	owner := call.Owner()
	return func(t *tool.Tool) bool { return p.gate.IsProvisioned(owner, t.Def.ID) }
}
