package upstream

import (
	"context"
	"encoding/json"
	"sync"

	"toolfinch/tool"
)

// member is a server of the pool with its connections.
type member struct {
	*server
	uses       *uses
	main       *connector
	sharing    *sharing
	supervisor *supervisor
	reconnects *reconnects
}

func newMember(s *server) *member {
	m := &member{server: s, uses: newUses(s.life), sharing: newSharing(s)}
	m.main = m.sharing.main.connector
	m.reconnects = &reconnects{sharing: m.sharing, anew: make(chan struct{}, 1)}
	m.supervisor = &supervisor{server: s, main: m.main, anew: m.reconnects.anew}
	return m
}

// call sends one tools/call, prompts/get or resources/read. See Pool.Call.
func (s *member) call(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
	r := newRequest(def)
	// A call with Params came as JSON from a client, so its arguments are valid.
	if call.Params == nil && call.Arguments != nil && !json.Valid(call.Arguments) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the arguments are not JSON"}
	}
	if err := s.resume(ctx, &r, call); err != nil {
		return nil, err
	}
	d := deliver(ctx, s.sharing, call, r)
	defer d.finish()
	return d.untilAnswered()
}

// complete sends one completion/complete. See Pool.Complete.
func (s *member) complete(ctx context.Context, call *tool.Call) (tool.Result, error) {
	d := deliver(ctx, s.sharing, call, request{
		method: "completion/complete", op: "complete", repeatable: true,
		needs: "completions", without: json.RawMessage(`{"completion":{"values":[]}}`),
	})
	defer d.finish()
	result, _, err := d.send()
	return tool.Result(result), err
}

// task sends one request about the task with this ID. See Pool.Task.
func (s *member) task(ctx context.Context, method, id string, call *tool.Call) (tool.Result, error) {
	d := deliver(ctx, s.sharing, call, request{method: method, op: method, task: id, repeatable: method != "tasks/update"})
	defer d.finish()
	result, _, err := d.send()
	if err != nil {
		return nil, err
	}
	return tool.Result(s.env.tasks.expose(s.settings.Name, result, call.Principal)), nil
}

// close ends the server's life, closes its connections, and waits for its goroutines. It may
// be called twice.
func (s *member) close() {
	s.end()
	for _, l := range s.sharing.connectors() {
		l.isClosed() // waits for holders of the lock that have not seen the end of the life
	}
	s.work.Wait()
	var closing sync.WaitGroup
	for _, l := range s.sharing.connectors() {
		closing.Go(l.close)
	}
	closing.Wait()
}
