package register

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// filter says what a stream is about. The draft of groups names no member; this one is named like the others.
type filter struct {
	mcp.SubscriptionFilter
	GroupsListChanged bool `json:"groupsListChanged,omitempty"`
}

// listen answers subscriptions/listen until the client ends it. owner is the owner of the client's
// requests.
func (l *Live) listen(ctx context.Context, served *Served, x *wire.Exchange, owner string) (tool.Result, error) {
	party, _ := identity.PartyOf(ctx)
	var params struct {
		Notifications filter `json:"notifications"`
	}
	if err := json.Unmarshal(x.Params, &params); err != nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "subscriptions/listen: the parameters do not match the specification"}
	}
	want, declared := params.Notifications, served.Declared
	allowed := filter{mcp.SubscriptionFilter{
		ToolsListChanged:     want.ToolsListChanged,
		PromptsListChanged:   want.PromptsListChanged && declared.Prompts,
		ResourcesListChanged: want.ResourcesListChanged && declared.Resources,
	}, want.GroupsListChanged && served.Groups != nil}
	t := &listener{id: x.ID, party: party, since: time.Now(), queued: make(chan notification, 100), wants: map[string]bool{
		toolsChanged:     allowed.ToolsListChanged,
		promptsChanged:   allowed.PromptsListChanged,
		resourcesChanged: allowed.ResourcesListChanged,
		groupsChanged:    allowed.GroupsListChanged,
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
	x.Notify("notifications/subscriptions/acknowledged", t.tagged(acknowledged))
	ended := t.tagged(json.RawMessage(`{"resultType":"complete"}`))
	if allowed.IsEmpty() && !allowed.GroupsListChanged {
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
