package upstream

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"toolfinch/internal/rawjson"
)

// notificationsTasks is the prefix of the methods that notify about tasks.
const notificationsTasks = "notifications/tasks"

// becameTask reports whether a result says that the call continues as a task.
func becameTask(result json.RawMessage) bool {
	return bytes.Contains(result, []byte(`"task"`)) && rawjson.Text(rawjson.Member(result, "resultType")) == "task"
}

// taskID is the server's own ID of the task that object is about; "" for none.
func taskID(object json.RawMessage) string { return rawjson.Text(rawjson.Member(object, "taskId")) }

// maxTasks bounds the tasks whose principals are remembered.
const maxTasks = 100_000

// tasks gives the tasks of servers (extension of 2026-07-28) names for clients. A name is
// "server/!proof!id", so that later requests find the task's server. The proof binds the
// name to the task's principal, so a guessed ID is useless; without a principal, only
// clients that were told the name can use it. "!" marks the proof because it never occurs
// in the escaped server name with which another proxy's ID begins.
type tasks struct {
	key []byte // key of the proofs' MAC

	mu     sync.Mutex // guards the fields below; never held over another lock
	owners map[taskKey]string
	order  []taskKey // keys of owners, the oldest first
}

// taskKey is the MAC of a server's name and a task's ID.
type taskKey [sha256.Size]byte

func newTasks(key [32]byte) *tasks {
	of := sum(key[:], "tasks")
	return &tasks{key: of[:], owners: map[taskKey]string{}}
}

// name returns the name of a server's task for a principal; "" is no principal.
func (t *tasks) name(server, id, principal string) string {
	return url.PathEscape(server) + "/!" + proof(t.key, server, id, principal) + "!" + id
}

// expose returns a result or params with the ID of their task, if any, replaced by its name
// for the principal.
func (t *tasks) expose(server string, object json.RawMessage, principal string) json.RawMessage {
	id := taskID(object)
	if id == "" {
		return object
	}
	if exposed, err := rawjson.Set(object, "taskId", rawjson.Quote(t.name(server, id, principal))); err == nil {
		return exposed
	}
	return object
}

// open splits a name. ok is false if the name was made for another principal.
func (t *tasks) open(name, principal string) (server, id string, ok bool) {
	escaped, id, ok := strings.Cut(name, "/")
	server, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return "", "", false
	}
	made, bare, proven := cutProof(id)
	return server, bare, proven && hmac.Equal([]byte(made), []byte(proof(t.key, server, bare, principal)))
}

// made remembers the principal of a new task. If a server uses an ID twice, the last
// principal counts.
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

// isOfAnother reports whether a task was made for another principal, or by any call
// without a principal.
func (t *tasks) isOfAnother(server, id, principal string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	owner, known := t.owners[sum(nil, server, id)]
	return known && (owner != principal || principal == "")
}

// proofBytes is the length of proofs: guessing 2^128 values is not possible.
const proofBytes = 16

func proof(key []byte, server, id, principal string) string {
	mac := sum(key, server, id, principal)
	return base64.RawURLEncoding.EncodeToString(mac[:proofBytes])
}

// cutProof splits the proof from an ID. ok is false if there is none.
func cutProof(id string) (proof, bare string, ok bool) {
	rest, ok := strings.CutPrefix(id, "!")
	if !ok {
		return "", "", false
	}
	proof, bare, ok = strings.Cut(rest, "!")
	return proof, bare, ok && len(proof) == base64.RawURLEncoding.EncodedLen(proofBytes)
}

// sum returns the MAC of texts. Quoting keeps texts apart, so that ("a", "bc") and
// ("ab", "c") differ.
func sum(key []byte, texts ...string) (out taskKey) {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%q", texts)
	mac.Sum(out[:0])
	return out
}
