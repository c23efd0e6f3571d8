package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"toolfinch/internal/rawjson"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// GatedIntro is Offer.Intro of a gated view.
const GatedIntro = "Tools here must be provisioned before they can be called, within a budget of tokens. " +
	"Say what you need to discover_tools, provision what you choose of it with provision_tools, " +
	"then call it by its name, or through execute_tool when it is not in your list. " +
	"unprovision_tools makes room for others."

// GateTools returns the meta-tools of a gated view. Together they stay under 2.5 kB listed.
func (r *Retriever) GateTools() []*tool.Tool {
	const (
		reads   = `{"readOnlyHint":true,"openWorldHint":false}`
		changes = `{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`
		ids     = `"tool_ids":{"type":"array","items":{"type":"string"}}`
	)
	return []*tool.Tool{
		meta(DiscoverTools, "Step 1: find tools by what they do, in plain English. Answers tool_id, summary and token cost; without a query lists all.",
			fmt.Sprintf(`{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do"},`+
				`"tags":{"type":"array","items":{"type":"string"},"description":"Only tools with all: server, read-only, destructive or a word"},`+
				`"limit":{"type":"integer","minimum":1,"maximum":%d,"default":%d}}}`, MaxLimit, r.settings.TopK), reads,
			func(ctx context.Context, call *tool.Call) (tool.Result, error) {
				q, err := r.ParseDiscover(call.Arguments)
				if err != nil {
					return refused(err)
				}
				return answered(r.Discover(ctx, call, q))
			}),
		meta(ProvisionTools, "Step 2: make tools callable, within the token budget: tool_ids (all or none), or the best for a query that fit. "+
			"Answers their definitions. Then call them by name or with execute_tool.",
			`{"type":"object","properties":{`+ids+`,"query":{"type":"string"},`+
				`"max_tokens":{"type":"integer","minimum":1,"description":"Spend no more on this"},`+
				`"ttl_seconds":{"type":"integer","minimum":1}}}`, changes,
			func(ctx context.Context, call *tool.Call) (tool.Result, error) {
				q, err := r.ParseProvision(call.Arguments)
				if err != nil {
					return refused(err)
				}
				return answered(r.Provision(ctx, call, q))
			}),
		meta(UnprovisionTools, "Give back provisioned tools, to make room in the budget.",
			`{"type":"object","properties":{`+ids+`,"all":{"type":"boolean"}}}`, changes,
			func(ctx context.Context, call *tool.Call) (tool.Result, error) {
				ids, err := parseUnprovision(call.Arguments)
				if err != nil {
					return refused(err)
				}
				return answered(r.Unprovision(ctx, call, ids))
			}),
		meta(ExecuteTool, "Step 3: call a provisioned tool that is not in your list. Arguments that do not fit are answered with its schema.",
			`{"type":"object","properties":{"tool_id":{"type":"string"},"arguments":{"type":"object"}},"required":["tool_id"]}`, `{}`, r.execute),
		meta(ListProvisioned, "What is provisioned, how long, and how much of the budget it takes.",
			`{"type":"object","properties":{}}`, reads,
			func(_ context.Context, call *tool.Call) (tool.Result, error) {
				if err := args.Read(ListProvisioned, call.Arguments); err != nil {
					return refused(err)
				}
				return answered(r.Provisions(call))
			}),
	}
}

// answered returns the result of a meta-tool. refused returns the result for an error that the model can correct;
// it passes other errors on.
func answered(value any, err error) (tool.Result, error) {
	if err != nil {
		return refused(err)
	}
	return answer(rawjson.Of(value)).result(), nil
}

func refused(err error) (tool.Result, error) {
	var request *args.Error
	var budget *gate.BudgetError
	if errors.As(err, &request) || errors.As(err, &budget) || errors.Is(err, ErrNotGated) || errors.Is(err, gate.ErrNotStored) {
		return tool.ErrorResult(err.Error()), nil
	}
	return nil, err
}

// parseUnprovision reads the arguments of unprovision_tools. It returns nil IDs for all.
func parseUnprovision(arguments json.RawMessage) (ids []string, err error) {
	var all bool
	err = args.Read(UnprovisionTools, arguments, args.Texts("tool_ids", &ids), args.Bool("all", &all))
	switch {
	case err != nil:
		return nil, err
	case all == (len(ids) > 0):
		return nil, args.Refuse(`send tool_ids, or {"all": true}`)
	case all:
		return nil, nil
	}
	return ids, nil
}
