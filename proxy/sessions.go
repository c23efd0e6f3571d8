package proxy

import (
	"encoding/json"

	"toolfinch/configs"
	"toolfinch/proxy/replicas"
	"toolfinch/register"
	"toolfinch/store"
	"toolfinch/tool"
)

// newSessions returns the HTTP sessions that other replicas may take over; nil without a shared store or without HTTP.
func newSessions(config *configs.Config, o options, beside *others, db *store.Store) *replicas.Sessions {
	rows, shared := db.Sessions()
	if !shared || config.Transport != configs.TransportHTTP {
		return nil
	}
	return replicas.NewSessions(beside.me.ID, rows, config.SessionTimeout, o.log)
}

// having implements replicas.Live for the sessions of a view.
type having struct{ *endpoint }

// had is the stored state of a session.
type had struct {
	Session     register.State     `json:"session"`
	Provisioned []tool.Provisioned `json:"provisioned,omitempty"` // tools whose owner is the session
}

// State returns the state of a session, as JSON.
func (h having) State(id string) (json.RawMessage, bool) {
	session, ok := h.live.State(id)
	if !ok {
		return nil, false
	}
	state, err := json.Marshal(had{session, h.gate.Of(tool.SessionOwner(id))})
	return state, err == nil
}

// Restore gives a session its stored state.
func (h having) Restore(id string, state json.RawMessage) {
	var had had
	if err := json.Unmarshal(state, &had); err != nil {
		h.desk.views.log.Warn("what a session had in another replica cannot be read", "view", h.view, "error", err)
		return
	}
	h.gate.Take(tool.SessionOwner(id), had.Provisioned)
	h.live.Restore(id, had.Session)
}
