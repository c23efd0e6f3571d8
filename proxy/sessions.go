package proxy

import (
	"encoding/json"

	"toolfinch/configs"
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
