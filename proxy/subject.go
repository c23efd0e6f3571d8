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

// subject says which view and tool an operation uses.
type subject struct {
	kind, view string
	tool       *tool.Tool      // nil for a meta-tool and for an unknown name
	shown      string          // cached text of the tool's ID; may be ""
	meta       bool            // the operation calls a meta-tool
	decision   *audit.Decision // decision of the policies; nil for none
}

// subjectOf returns the subject for a tool, prompt or resource of a view.
func subjectOf(view string, t *tool.Tool) subject {
	return subject{kind: eventOf(t.Def.ID.Kind), view: view, tool: t, shown: t.Def.ID.Shown()}
}

// eventOf returns the kind of an operation on a definition of the given kind.
func eventOf(kind tool.Kind) string {
	switch kind {
	case tool.KindPrompt:
		return identity.EventPrompt
	case tool.KindResource, tool.KindTemplate, tool.KindSkill:
		return identity.EventRead
	}
	return identity.EventCall
}

// operation returns the operation of a call that begins.
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

// transportCommand is the transport of calls by the owner's commands.
const transportCommand = "command"

func eraOf(c *tool.Client) string {
	if c.Modern {
		return "2026-07-28"
	}
	return "legacy"
}
