package proxy

import (
	"cmp"
	"context"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/trust/audit"
)

// subject is what an operation is about.
type subject struct {
	kind, view string
	tool       *tool.Tool      // nil: a meta-tool, or nothing that the view has
	shown      string          // the tool's ID, where it is worth keeping
	meta       bool            // a meta-tool
	decision   *audit.Decision // that was made before the call; nil: none
}

// subjectOf is a tool, prompt or resource of a view.
func subjectOf(view string, t *tool.Tool) subject {
	return subject{kind: eventOf(t.Def.ID.Kind), view: view, tool: t, shown: t.Def.ID.Shown()}
}

// eventOf is the kind of the operations on what is of a kind.
func eventOf(kind tool.Kind) string {
	switch kind {
	case tool.KindPrompt:
		return identity.EventPrompt
	case tool.KindResource, tool.KindTemplate:
		return identity.EventRead
	}
	return identity.EventCall
}

// operation is a call as it begins.
func (s subject) operation(ctx context.Context, call *tool.Call) telemetry.Operation {
	o := telemetry.Operation{
		Kind: s.kind, View: s.view, Name: printable.URI(call.Name), Meta: s.meta, Principal: cmp.Or(call.Principal, identity.NameOf(ctx)), Session: identity.Digest(call.Session),
		Request: string(call.Request), Depth: call.Depth, BytesIn: len(call.Arguments),
	}
	if s.tool != nil {
		o.Server, o.Tool = s.tool.Def.ID.Server, s.shown
		if o.Tool == "" {
			o.Tool = s.tool.Def.ID.Shown()
		}
	}
	if c := call.Client; c != nil {
		o.Client, o.Era = c.Name, eraOf(c)
	}
	if from, ok := identity.SourceOf(ctx); ok {
		o.Transport = from.Transport
	} else if call.Local {
		o.Transport = transportCommand
	}
	return o
}

// transportCommand is by what the owner's own commands make calls.
const transportCommand = "command"

func eraOf(c *tool.Client) string {
	if c.Modern {
		return "2026-07-28"
	}
	return "legacy"
}
