package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/tool"
	"toolfinch/trust/audit"
	"toolfinch/upstream"
)

// auditor writes calls and events to the audit log. Without a log it does nothing.
type auditor struct {
	log      *audit.Log
	settings audit.Settings
}

// add logs a finished call; finish adds the outcome.
func (a auditor) add(ctx context.Context, s subject, call *tool.Call, finish func(*audit.Line)) {
	if a.log != nil {
		line := a.line(ctx, s, call)
		finish(&line)
		a.log.Add(line)
	}
}

// beginning is a call that has not reached a server yet.
type beginning struct {
	about subject
	call  *tool.Call
	id    string // links the call's two lines; "" before the first line
}

type beginningKey struct{}

// begins logs a call before it is sent to a server; nil without an audit log and for a read-only tool. If the log
// cannot be written, the call is not sent.
func (a auditor) begins(def *tool.Def) tool.Middleware {
	if a.log == nil || def.Annotations.ReadOnly {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			if err := a.begin(ctx); err != nil {
				return nil, err
			}
			return next(ctx, call)
		}
	}
}

func (a auditor) begin(ctx context.Context) error {
	b, _ := ctx.Value(beginningKey{}).(*beginning)
	if b == nil || b.id != "" || b.about.kind != identity.EventCall {
		return nil
	}
	line := a.line(ctx, b.about, b.call)
	b.id = rand.Text()[:16]
	line.Call, line.Outcome = b.id, identity.Begun
	return a.log.Write(line)
}

// note logs a call that was not made.
func (a auditor) note(ctx context.Context, s subject, call *tool.Call, finish func(*audit.Line)) {
	if a.log != nil {
		line := a.line(ctx, s, call)
		finish(&line)
		a.log.Note(line)
	}
}

// line describes a call: its subject, its caller and its arguments.
func (a auditor) line(ctx context.Context, s subject, call *tool.Call) audit.Line {
	line := audit.Line{Event: s.kind, View: s.view, Decision: s.decision}
	if s.tool != nil {
		def := s.tool.Def
		line.Server, line.Tool, line.DefHash = def.ID.Server, def.ID.String(), def.Hash
		line.Annotations = &audit.Annotations{
			ReadOnly: def.Annotations.ReadOnly, Destructive: def.Annotations.Destructive,
			Idempotent: def.Annotations.Idempotent, OpenWorld: def.Annotations.OpenWorld,
		}
	}
	if call.Principal != "" {
		line.Principal = &audit.Principal{ID: call.Principal}
	}
	if c := call.Client; c != nil {
		line.Client, line.Era = audit.ClientOf(c.Name), eraOf(c)
	}
	line.Name, line.Depth, line.Session, line.Request = call.Name, call.Depth, identity.Digest(call.Session), string(call.Request)
	if call.Local {
		line.Transport = transportCommand
	}
	if arguments := call.Arguments; arguments != nil {
		line.BytesIn = len(arguments)
		sum := sha256.Sum256(arguments)
		line.ArgsSHA256 = hex.EncodeToString(sum[:])
		if a.settings.Arguments == audit.ArgumentsFull {
			line.Args = a.log.Content(arguments)
		}
	}
	a.log.About(ctx, &line)
	return line
}

// spawned logs the process of a server: only its program, because arguments and environment may contain secrets.
func (a auditor) spawned(server string, s *upstream.Settings, pid int) {
	if a.log == nil {
		return
	}
	a.log.Record(context.Background(), identity.Event{Kind: identity.EventSpawn, Server: server, Details: map[string]string{
		"command": filepath.Base(s.Command), "arguments": strconv.Itoa(len(s.Args)), "pid": strconv.Itoa(pid), "sandbox": s.Sandbox.String(),
	}})
}

// loaded logs a new configuration, or why it was refused.
func (a auditor) loaded(ctx context.Context, config *configs.Config, refusal error) {
	if a.log == nil {
		return
	}
	e := identity.Event{Kind: identity.EventConfig, Details: map[string]string{"file": filepath.Base(config.Path)}}
	if text, err := os.ReadFile(config.Path); err == nil {
		sum := sha256.Sum256(text)
		e.Details["sha256"] = hex.EncodeToString(sum[:])
	}
	if refusal != nil {
		e.Outcome, e.Reason = identity.Failed, refusal.Error()
	}
	a.log.Record(ctx, e)
}
