package upstream

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// The tasks extension of 2026-07-28 passes through between a client and a
// server of that era: a result of type task names a task, and later requests
// name it again. To find its server then, the name that clients see begins with
// the server's. A proof of the principal that it was made for follows, or of there
// being none: who guesses the ID of a task does not get at it, and of clients
// without a principal only those that were told the name do.

// notificationsTasks is what the methods of notifications about tasks begin with.
const notificationsTasks = "notifications/tasks"

// Task sends a tasks/get, tasks/update or tasks/cancel to the server whose task
// it is, which call.Name says. A task of another principal, or of one where
// call has none, is answered as one that does not exist. Names with a proof are
// good as long as the key of the pool. Errors are as of Call.
func (p *Pool) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	name, id, ok := p.tasks.open(call.Name, call.Principal)
	var s *server
	if ok {
		s = p.enter(name)
	}
	if s == nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	defer s.uses.exit()
	d := s.begin(ctx, call, request{method: method, op: method, task: id, repeatable: method != "tasks/update"})
	defer d.finish()
	result, _, err := d.send()
	if err != nil {
		return nil, s.mask.error(err)
	}
	return tool.Result(s.exposeTask(result, call.Principal)), nil
}

// becameTask reports whether a result says that a call goes on as a task.
func becameTask(result json.RawMessage) bool {
	return bytes.Contains(result, []byte(`"task"`)) && rawjson.Text(rawjson.Member(result, "resultType")) == "task"
}

// taskMade is the result of a call that goes on as a task, as its caller sees it.
func (s *server) taskMade(result json.RawMessage, principal string) tool.Result {
	s.tasks.made(s.settings.Name, rawjson.Text(rawjson.Member(result, "taskId")), principal)
	return tool.Result(s.exposeTask(result, principal))
}

// exposeTask is a result, or the params of a notification, with the ID of its
// task, if it has one, as the principal sees it.
func (s *server) exposeTask(object json.RawMessage, principal string) json.RawMessage {
	id := rawjson.Text(rawjson.Member(object, "taskId"))
	if id == "" {
		return object
	}
	if exposed, err := rawjson.Set(object, "taskId", rawjson.Quote(s.tasks.name(s.settings.Name, id, principal))); err == nil {
		return exposed
	}
	return object
}

// taskNotified passes what the upstream notifies of a task on to the call on
// whose stream it came. Nothing else says whose the task is.
func (c *connection) taskNotified(stream int64, method string, params json.RawMessage) {
	s, of := c.server, c.calls.of(stream)
	if of == nil || s.tasks.isOfAnother(s.settings.Name, rawjson.Text(rawjson.Member(params, "taskId")), of.Principal) {
		s.log.Debug("a notification about a task belongs to no call and was dropped", "method", method)
		return
	}
	c.calls.pass(stream, of, method, s.exposeTask(params, of.Principal))
}

// maxTasks is how many tasks are remembered with the principals they are of.
const maxTasks = 100_000

// tasks names tasks towards clients. Names are "server/!proof!id": no escaped name
// of a server, which the ID of a further proxy begins with, has a "!".
type tasks struct {
	key []byte // of the proofs

	mu     sync.Mutex // guards what follows; never held over anything else
	owners map[taskKey]string
	order  []taskKey // of owners, the oldest first
}

// taskKey stands for a server and an ID.
type taskKey [sha256.Size]byte

func newTasks(key [32]byte) *tasks {
	of := sum(key[:], "tasks")
	return &tasks{key: of[:], owners: map[taskKey]string{}}
}

// name is what the task of a server is called towards a principal, "" for nobody.
func (t *tasks) name(server, id, principal string) string {
	return url.PathEscape(server) + "/!" + proof(t.key, server, id, principal) + "!" + id
}

// open takes a name apart, unless the task is not the principal's.
func (t *tasks) open(name, principal string) (server, id string, ok bool) {
	escaped, id, ok := strings.Cut(name, "/")
	server, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return "", "", false
	}
	made, bare, proven := cutProof(id)
	return server, bare, proven && hmac.Equal([]byte(made), []byte(proof(t.key, server, bare, principal)))
}

// made remembers for whom a task was made. A server may give an ID twice: the
// last one counts.
func (t *tasks) made(server, id, principal string) {
	key := sum(nil, server, id)
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.owners[key]
	t.owners[key] = principal
	if known {
		return
	}
	if t.order = append(t.order, key); len(t.order) > maxTasks {
		delete(t.owners, t.order[0])
		t.order = t.order[1:]
	}
}

// isOfAnother reports whether a task was made for another principal, or by another
// call without one.
func (t *tasks) isOfAnother(server, id, principal string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	owner, known := t.owners[sum(nil, server, id)]
	return known && (owner != principal || principal == "")
}

// proofBytes is how much of a MAC proofs have: nobody tries 2^128.
const proofBytes = 16

func proof(key []byte, server, id, principal string) string {
	mac := sum(key, server, id, principal)
	return base64.RawURLEncoding.EncodeToString(mac[:proofBytes])
}

// cutProof takes the proof off an ID, if there is one.
func cutProof(id string) (proof, bare string, ok bool) {
	rest, ok := strings.CutPrefix(id, "!")
	if !ok {
		return "", "", false
	}
	proof, bare, ok = strings.Cut(rest, "!")
	return proof, bare, ok && len(proof) == base64.RawURLEncoding.EncodedLen(proofBytes)
}

// sum is the MAC of texts; of no others that, written one after the other, are
// the same.
func sum(key []byte, texts ...string) (out taskKey) {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%q", texts)
	mac.Sum(out[:0])
	return out
}
