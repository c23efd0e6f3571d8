package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

const maxBody = 1 << 20

// front does before the library what the library cannot: end the stream of a
// call before its answer, refuse a call for a capability with the error code and
// status that the specification asks for, say in an error's data which resource
// there is not, and the tasks of 2026-07-28.
type front struct {
	next  http.Handler
	tasks *tasks

	mu      sync.Mutex        // guards what follows; not held over a write
	pending map[string][]byte // answers by the event ID they come after
	events  int
}

func newFront(next http.Handler, ts *tasks) *front {
	return &front{next: next, tasks: ts, pending: map[string][]byte{}}
}

// message is what the front wants to know of a request.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name           string                     `json:"name"`
		URI            string                     `json:"uri"`
		TaskID         string                     `json:"taskId"`
		InputResponses map[string]json.RawMessage `json:"inputResponses"`
		Meta           struct {
			Capabilities struct {
				Sampling   *struct{}                  `json:"sampling"`
				Extensions map[string]json.RawMessage `json:"extensions"`
			} `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	} `json:"params"`
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && f.resume(w, r) {
		return
	}
	if r.Method != http.MethodPost {
		f.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "cannot read the request: "+err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m message
	_ = json.Unmarshal(body, &m) // what is wrong with it is for the library to say
	if r.Header.Get("MCP-Protocol-Version") < mcp.LATEST_PROTOCOL_VERSION {
		f.legacy(w, r, m)
		return
	}
	f.modern(w, r, m)
}

func (f *front) legacy(w http.ResponseWriter, r *http.Request, m message) {
	if m.Method == "tools/call" && m.Params.Name == "test_reconnection" {
		f.hangUp(w, r)
		return
	}
	f.next.ServeHTTP(w, r)
}

func (f *front) modern(w http.ResponseWriter, r *http.Request, m message) {
	offered := m.Params.Meta.Capabilities
	_, knowsTasks := offered.Extensions[tasksExtension]
	switch m.Method {
	case "resources/read":
		f.rewrite(w, r, func(body []byte) []byte { return withURI(body, m.Params.URI) })
	case "tasks/get", "tasks/update", "tasks/cancel":
		f.tasks.serve(w, r, m)
	case "tools/call":
		needed, mayBeTask := taskTools[m.Params.Name]
		switch {
		case m.Params.Name == "test_missing_capability" && offered.Sampling == nil:
			refuse(w, m.ID, map[string]any{"sampling": map[string]any{}})
		case needed && !knowsTasks:
			refuse(w, m.ID, needsTasks)
		case mayBeTask:
			f.rewrite(w, r, asTask)
		default:
			f.next.ServeHTTP(w, r)
		}
	default:
		f.next.ServeHTTP(w, r)
	}
}

var needsTasks = map[string]any{"extensions": map[string]any{tasksExtension: map[string]any{}}}

// refuse tells which capabilities a request needs.
func refuse(w http.ResponseWriter, id json.RawMessage, capabilities map[string]any) {
	sendError(w, http.StatusBadRequest, id, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "the client lacks a capability", map[string]any{"requiredCapabilities": capabilities})
}

func sendError(w http.ResponseWriter, status int, id json.RawMessage, code int, text string, data map[string]any) {
	e := map[string]any{"code": code, "message": text}
	if data != nil {
		e["data"] = data
	}
	send(w, status, map[string]any{"jsonrpc": "2.0", "id": id, "error": e})
}

func send(w http.ResponseWriter, status int, answer map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // whoever is gone needs no answer
}

// rewrite has the library answer and changes the body.
func (f *front) rewrite(w http.ResponseWriter, r *http.Request, change func([]byte) []byte) {
	kept := &keeper{header: w.Header(), status: http.StatusOK}
	f.next.ServeHTTP(kept, r)
	w.Header().Del("Content-Length")
	w.WriteHeader(kept.status)
	_, _ = w.Write(change(kept.body.Bytes()))
}

// withURI adds the URI to an error without data.
func withURI(body []byte, uri string) []byte {
	var answer map[string]any
	if json.Unmarshal(body, &answer) != nil {
		return body
	}
	e, ok := answer["error"].(map[string]any)
	if !ok || e["data"] != nil {
		return body
	}
	e["data"] = map[string]any{"uri": uri}
	out, err := json.Marshal(answer)
	if err != nil {
		return body
	}
	return out
}

// hangUp has the library answer, keeps the answer, and ends the stream after an
// event that only says where to continue.
func (f *front) hangUp(w http.ResponseWriter, r *http.Request) {
	kept := &keeper{header: http.Header{}}
	f.next.ServeHTTP(kept, r)
	f.mu.Lock()
	f.events++
	id := fmt.Sprintf("hung-up-%d", f.events)
	f.pending[id] = kept.body.Bytes()
	f.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "id: %s\nretry: 100\ndata: \n\n", id)
}

// resume continues a stream that hangUp ended. It reports whether it was one.
func (f *front) resume(w http.ResponseWriter, r *http.Request) bool {
	id := r.Header.Get("Last-Event-ID")
	f.mu.Lock()
	kept, ok := f.pending[id]
	delete(f.pending, id)
	f.mu.Unlock()
	if !ok {
		return false
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if !bytes.HasPrefix(kept, []byte("{")) { // it is a stream already
		_, _ = w.Write(kept)
		return true
	}
	fmt.Fprintf(w, "id: %s-end\ndata: %s\n\n", id, bytes.TrimSpace(kept))
	return true
}

// keeper keeps a response instead of sending it.
type keeper struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keeper) Header() http.Header         { return k.header }
func (k *keeper) Write(p []byte) (int, error) { return k.body.Write(p) }
func (k *keeper) WriteHeader(status int)      { k.status = status }
func (k *keeper) Flush()                      {}
