package upstream

import (
	"encoding/json"
	"sync"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

const methodRoots = "roots/list"

// noRoots is the answer to roots/list for a client without roots.
var noRoots = json.RawMessage(`{"roots":[]}`)

// rootsOwner identifies the client whose roots a server may know; "" is no client. A server
// never forgets roots for certain: it may keep them if the next client answers with an
// error or without roots, replace them late, or never ask again. So a call is never sent
// over a connection whose server knows the roots of another owner.
type rootsOwner string

// ownerSession is the owner of a session's roots.
func ownerSession(key string) rootsOwner { return rootsOwner("session " + key) }

// hasRoots reports whether a result of roots/list has any roots.
func hasRoots(result json.RawMessage) bool {
	for range rawjson.Elements(rawjson.Member(result, "roots")) {
		return true
	}
	return false
}

// callRoots is the answer of a 2026-07-28 client to roots/list during one call.
type callRoots struct {
	mu     sync.Mutex // guards result
	result json.RawMessage
}

// owner returns the owner of the roots that a server may know when it gets a call of
// client: the client's session. A 2026-07-28 client has no session, so its answer to
// roots/list identifies it. The owner is "" before that answer, and for a client without roots.
func (r *callRoots) owner(client *tool.Client) rootsOwner {
	if !client.Can(tool.CapabilityRoots) {
		return ""
	}
	if !client.Modern {
		return ownerSession(client.Key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !hasRoots(r.result) {
		return ""
	}
	return rootsOwner("roots " + string(rawjson.Member(r.result, "roots")))
}

func (r *callRoots) learn(client *tool.Client, result json.RawMessage) {
	if !client.Modern {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result = result
}

// answer returns the client's earlier answer to the same question; nil if there is none.
func (r *callRoots) answer(method string, params json.RawMessage) json.RawMessage {
	if method != methodRoots || !rawjson.IsEmpty(params) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}
