package register

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// listen answers subscriptions/listen until the client ends it. owner is the owner of the client's
// requests.
func (l *Live) listen(ctx context.Context, served *Served, x *wire.Exchange, owner string) (tool.Result, error) {
	party, _ := identity.PartyOf(ctx)
	var params struct {
		Notifications mcp.SubscriptionFilter `json:"notifications"`
	}
	if err := json.Unmarshal(x.Params, &params); err != nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "subscriptions/listen: the parameters do not match the specification"}
	}
	want, declared := params.Notifications, served.Declared
	allowed := mcp.SubscriptionFilter{
		ToolsListChanged:     want.ToolsListChanged,
		PromptsListChanged:   want.PromptsListChanged && declared.Prompts,
		ResourcesListChanged: want.ResourcesListChanged && declared.Resources,
	}
	groups := served.Groups != nil && asksForGroups(x.Params)
	t := &listener{id: x.ID, party: party, since: time.Now(), queued: make(chan notification, 100), wants: map[string]bool{
		toolsChanged:     allowed.ToolsListChanged,
		promptsChanged:   allowed.PromptsListChanged,
		resourcesChanged: allowed.ResourcesListChanged,
		groupsChanged:    groups,
	}}
	t.provisioned.follow(owner, served.granted)
	t.told.Store(l.fingerprints.of(served))
	t.direct.Store(!l.countAsOne(served) && l.listsAll(nil, served))
	key := modernKey()
	l.listeners.add(key, t)
	l.tell(t, l.served(party)) // changes since served was read
	defer func() {
		l.listeners.remove(key)
		l.suspended.background(func(ctx context.Context) { l.subscriptions.leave(ctx, key) })
	}()
	for _, uri := range want.ResourceSubscriptions {
		resource, ok := served.Resource(uri)
		if !ok || !declared.Subscribe {
			continue
		}
		if err := l.subscriptions.join(ctx, uri, resource.Def.ID, key); err != nil {
			l.log.Debug("not subscribed", "uri", uri, "error", err)
			continue
		}
		allowed.ResourceSubscriptions = append(allowed.ResourceSubscriptions, uri)
	}
	acknowledged, err := json.Marshal(map[string]any{"notifications": allowed})
	if err != nil {
		return nil, err
	}
	if groups {
		acknowledged, _ = rawjson.Update(acknowledged, "notifications", acknowledgedGroups)
	}
	x.Notify("notifications/subscriptions/acknowledged", t.tagged(acknowledged))
	ended := t.tagged(json.RawMessage(`{"resultType":"complete"}`))
	if allowed.IsEmpty() && !groups {
		return tool.Result(ended), nil
	}
	for {
		select {
		case n := <-t.queued:
			x.Notify(n.method, t.tagged(n.params))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-l.closing:
			return tool.Result(ended), nil
		}
	}
}
