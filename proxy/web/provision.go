package web

import (
	"time"

	"toolfinch/internal/identity"
	"toolfinch/retrieve"
	"toolfinch/tool/args"
)

// Bounds of a request to provision.
const (
	maxTokens = 1_000_000_000
	maxTTL    = 365 * 24 * 60 * 60 // seconds
)

// provision makes tools callable: all or none of the named tools, or the best tools for a query within the budget.
func (s *server) provision(q *request) (any, error) {
	var ask retrieve.ProvisionRequest
	var tokens, context, ttl int
	err := q.fields(
		args.Texts("tool_ids", &ask.IDs),
		args.Text("query", &ask.Query),
		args.Int("max_tokens", &tokens, 1, maxTokens),
		args.Int("context_tokens", &context, 1, maxTokens),
		args.Int("ttl_seconds", &ttl, 1, maxTTL),
		args.Int("limit", &ask.Limit, 1, retrieve.MaxLimit),
	)
	switch {
	case err != nil:
		return nil, err
	case ask.Query == "" && ask.Limit > 0:
		return nil, badRequest("limit goes with a query")
	case tokens > 0 && context > 0:
		return nil, badRequest("context_tokens is another name of max_tokens: send one of them")
	}
	ask.MaxTokens = max(tokens, context)
	ask.TTL = time.Duration(ttl) * time.Second
	if err := q.complete(ask.IDs...); err != nil {
		return nil, err
	}
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	ctx, done, err := q.observe(call, identity.EventCall, retrieve.ProvisionTools)
	if err != nil {
		return nil, err
	}
	answer, err := q.view.Retriever.Provision(ctx, call, ask)
	if done(err); err != nil {
		return nil, err
	}
	return answer, nil
}

// listProvisioned answers with the provisioned tools and the used part of the budget.
func (s *server) listProvisioned(q *request) (any, error) {
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	return q.view.Retriever.Provisions(call)
}

func (s *server) unprovision(q *request) (any, error) {
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	t, err := q.tool(q.PathValue("id"))
	if err != nil {
		return nil, err
	}
	ctx, done, err := q.observe(call, identity.EventCall, retrieve.UnprovisionTools)
	if err != nil {
		return nil, err
	}
	answer, err := q.view.Retriever.Unprovision(ctx, call, []string{t.Name})
	if done(err); err != nil {
		return nil, err
	}
	if len(answer.Unprovisioned) == 0 {
		return nil, notFound("Tool %s is not provisioned.", t.Name)
	}
	return answer, nil
}
