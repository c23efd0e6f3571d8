package proxy

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/proxy/replicas"
	"toolfinch/register"
	"toolfinch/store"
	"toolfinch/tool"
)

// newSessions returns the sessions of clients over HTTP as other replicas may take them over; nil where there are none.
func newSessions(config *configs.Config, o options, beside *others, db *store.Store) *replicas.Sessions {
	rows, shared := db.Sessions()
	if !shared || config.Transport != configs.TransportHTTP {
		return nil
	}
	return replicas.NewSessions(beside.me.ID, rows, config.SessionTimeout, o.log)
}

// having is what sessions of a view have, as it is stored.
type having struct{ *endpoint }

// had is that of one session, as JSON.
type had struct {
	Session     register.State     `json:"session"`
	Provisioned []tool.Provisioned `json:"provisioned,omitempty"` // what the session has of its own
}

// State returns what a session has.
func (h having) State(id string) (json.RawMessage, bool) {
	session, ok := h.live.State(id)
	if !ok {
		return nil, false
	}
	state, err := json.Marshal(had{session, h.gate.Of(tool.SessionOwner(id))})
	return state, err == nil
}

// Restore gives a session what it had.
func (h having) Restore(id string, state json.RawMessage) {
	var had had
	if err := json.Unmarshal(state, &had); err != nil {
		h.desk.views.log.Warn("what a session had in another replica cannot be read", "view", h.view, "error", err)
		return
	}
	h.gate.Take(tool.SessionOwner(id), had.Provisioned)
	h.live.Restore(id, had.Session)
}

// Changed hears of a session that has something else now.
func (h liveHost) Changed(session string) {
	if h.of.sessions != nil {
		h.of.sessions.Changed(session)
	}
}

// withSession has the session that a request of the REST API names here, if it is another replica's.
func (p *Proxy) withSession(api http.Handler) http.Handler {
	if p.desk.sessions == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(mcp.HeaderSessionID)
		now := p.now.Load()
		if v, err := p.viewIn(now, r.URL.Query().Get("view")); err == nil && id != "" && identity.NameOf(r.Context()) == "" {
			if e := now.endpoints[v.Name]; !e.live.Knows(id) {
				_ = e.http.Take(r.Context(), id) // the API says that it does not know the session
			}
		}
		api.ServeHTTP(w, r)
	})
}

// lastly has each connection end with its next answer once this replica is about to end. Those
// that are idle stay until load balancers have looked away: one may just have sent a request.
func (p *Proxy) lastly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// lookAway is the part of the time to drain in which load balancers notice that this replica is about to end, as
// /readyz says. Requests that come meanwhile are answered.
const lookAway = 5

// leave waits until load balancers have looked away, and returns what is left of the time to drain.
func (p *Proxy) leave(drain time.Duration) (left time.Duration) {
	if p.desk.sessions == nil {
		return drain
	}
	p.draining.Store(true)
	p.log.Info("this replica is about to end: its sessions go on at others", "within", drain)
	time.Sleep(drain / lookAway)
	return drain - drain/lookAway
}
