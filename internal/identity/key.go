package identity

import "time"

// Key is an API key as it is stored: the key itself is not.
type Key struct {
	Name           string   // unique; the principal's ID is "key|NAME"
	Hash           [32]byte // SHA-256 of the key
	View           string   // the only view that it may use, "" for any
	Scopes, Groups []string // sorted, each once
	Created        time.Time
	Expires        time.Time // zero: never
	Used           time.Time // when it was used last, to the minute; zero: never
}

// Event is the event that the key was made or revoked.
func (k Key) Event(change string) Event {
	return Event{Kind: EventKey, Tool: k.Name, View: k.View, Details: map[string]string{"change": change}}
}
