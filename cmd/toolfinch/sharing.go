package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/relay"
	"toolfinch/internal/wire"
	"toolfinch/proxy"
)

// attachment is what a relay says of its agent.
type attachment struct {
	Configuration string            `json:"configuration"` // absolute path
	Key           []byte            `json:"key"`           // of the digests
	Parts         map[string][]byte `json:"parts"`         // digests of the relay's sameness
	View          string            `json:"view"`          // "" for the root
}

// refusal is why a relay is not let in.
type refusal struct {
	PID     int      `json:"pid"`
	Differs []string `json:"differs,omitempty"` // parts of the sameness
	NoView  bool     `json:"no_view,omitempty"` // the view of the relay does not exist
	Reason  string   `json:"reason,omitempty"`
}

// maxAttachment bounds an attachment, in bytes.
const maxAttachment = 1 << 20

// sharing lets relays of agents in to a running proxy, and ends a background process that nobody uses any more.
type sharing struct {
	proxy    *proxy.Proxy
	vaultKey string
	reread   func(ctx context.Context) // reads the configuration again, and returns when it is served or refused
	life     context.Context           // of the agents' connections
	idle     func()                    // ends the process; nil for a process that does not end by itself
	log      *slog.Logger

	running sync.WaitGroup // connections of agents

	mu      sync.Mutex // guards the fields below; held for assignments only
	config  *configs.Config
	first   *configs.Config // at the start: some keys hold until a restart
	same    sameness        // what agents must have in common with this process
	users   int
	unused  *time.Timer // runs while users is 0
	old     bool        // a newer program serves new agents: this process ends with its last agent
	edited  bool        // an edit needs a restart: likewise
	leaving bool        // nobody is let in
}

// comesWithin is how long a background process waits for its first agent, at least.
const comesWithin = time.Minute

// serves notes the configuration that is served from now on.
func (h *sharing) serves(config *configs.Config) {
	same := samenessOf(config, h.vaultKey)
	same[partProgram] = startedAs
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.config == nil {
		h.first = config
	}
	// After an edit that needs a restart, agents that come from now on get another process.
	restart := slices.DeleteFunc(configs.NeedRestart(h.first, config), func(key string) bool { return key == "listen" }) // listen is no part of a sameness
	if h.edited = len(restart) > 0; !h.edited {
		h.same = same
	}
	h.config = config
	if h.unused == nil && h.idle != nil {
		h.unused = time.AfterFunc(max(config.KeepRunning, leeway.Of(comesWithin)), h.rest)
	}
}

// rest ends the process if it has no users.
func (h *sharing) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 && !h.leaving {
		h.leaving = true
		h.idle()
	}
}

// enter counts a user, until leave. It reports false if the process is about to end.
func (h *sharing) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaving || h.life.Err() != nil {
		return false
	}
	h.users++
	h.running.Add(1)
	if h.unused != nil {
		h.unused.Stop()
	}
	return true
}

func (h *sharing) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	h.running.Done()
	h.wind()
}

// wind starts the time without users; the caller holds the lock.
func (h *sharing) wind() {
	if h.users > 0 || h.idle == nil || h.unused == nil {
		return
	}
	wait := h.config.KeepRunning
	if h.old || h.edited {
		wait = 0
	}
	h.unused.Reset(wait)
}

// differs compares a relay's sameness with that of this process.
func (h *sharing) differs(a attachment) []string {
	h.mu.Lock()
	same := h.same
	h.mu.Unlock()
	return same.differs(a.Key, a.Parts)
}

// attach connects the agent of a relay with the proxy. The connection carries one message a line from then on.
func (h *sharing) attach(w http.ResponseWriter, r *http.Request) {
	var a attachment
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAttachment)).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	refuse := func(why refusal) {
		why.PID = os.Getpid()
		w.WriteHeader(http.StatusConflict)
		_ = rawjson.Write(w, why, "")
	}
	differs := h.differs(a)
	if slices.ContainsFunc(differs, func(part string) bool { return part == partConfiguration || strings.HasPrefix(part, partSecret) }) { // changed a moment ago
		ctx, cancel := context.WithTimeout(r.Context(), leeway.Of(liveWait)/2)
		h.reread(ctx)
		cancel()
		differs = h.differs(a)
	}
	if len(differs) > 0 {
		if len(differs) == 1 && differs[0] == partProgram {
			h.replaced()
		}
		refuse(refusal{Differs: differs})
		return
	}
	if _, err := h.proxy.View(a.View); err != nil {
		refuse(refusal{NoView: true, Reason: err.Error()})
		return
	}
	if !h.enter() {
		refuse(refusal{Reason: "it is about to end"})
		return
	}
	defer h.leave()
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.log.Warn("an agent could not be let in", "error", err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: mcp\r\n\r\n"); err != nil {
		return
	}
	if err := h.proxy.ServeClient(h.life, a.View, buffer.Reader, conn); err != nil {
		h.log.Debug("the connection of an agent has failed", "error", err)
	}
	if h.life.Err() != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write(append(wire.Message(nil, relay.Stopped, nil), '\n'))
	}
}

// replaced notes that a newer program runs.
func (h *sharing) replaced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.old {
		h.old = true
		h.log.Info("a newer program was started: this process ends with its last agent")
	}
	h.wind()
}

// upgraded is the connection after an HTTP upgrade. What was read with the answer comes first.
type upgraded struct {
	*net.UnixConn
	first *bufio.Reader
}

// Read reads the buffered bytes first.
func (u upgraded) Read(p []byte) (int, error) { return u.first.Read(p) }

// errRefused is wrapped if a toolfinch does not let an agent in.
var errRefused = errors.New("not let in")

// attachTo asks the process at a socket to let an agent in. why has the reason if it does not.
func attachTo(ctx context.Context, socket string, a attachment) (conn net.Conn, why refusal, err error) {
	raw, err := dialLive(ctx, socket)
	if err != nil {
		return nil, why, err
	}
	defer func() {
		if err != nil {
			_ = raw.Close()
		}
	}()
	_ = raw.SetDeadline(time.Now().Add(leeway.Of(liveWait)))
	body, err := json.Marshal(a)
	if err != nil {
		return nil, why, err
	}
	if _, err = fmt.Fprintf(raw, "POST /attach HTTP/1.1\r\nHost: live\r\nConnection: Upgrade\r\nUpgrade: mcp\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return nil, why, err
	}
	reader := bufio.NewReader(raw)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, why, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		data, _ := io.ReadAll(io.LimitReader(response.Body, maxAttachment))
		_ = json.Unmarshal(data, &why)
		return nil, why, errRefused
	}
	_ = raw.SetDeadline(time.Time{})
	return upgraded{raw, reader}, why, nil
}
