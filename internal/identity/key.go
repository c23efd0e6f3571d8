package identity

import (
	"crypto/rand"
	"strings"
	"time"
)

// Key is an API key as it is stored: the key itself is not.
type Key struct {
	Name           string   // unique among the keys that there are; policies call the key "key|NAME"
	ID             string   // of the principal: no other key ever has it
	Hash           [32]byte // SHA-256 of the key
	View           string   // the only view that it may use, "" for any
	Scopes, Groups []string // sorted, each once
	Created        time.Time
	Expires        time.Time // zero: never
	Used           time.Time // when it was used last, to the minute; zero: never
}

// NewKeyID makes the ID of a key of a name: "key|NAME|", and what no other key has.
func NewKeyID(name string) string {
	return From(KeySource, name+sourceEnds+strings.ToLower(rand.Text()[:16])) // 80 random bits
}

// Expired reports whether the key is past its end.
func (k Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// Principal is who has shown the key.
func (k Key) Principal() *Principal {
	return &Principal{ID: k.ID, Groups: AllFrom(KeySource, k.Groups), Scopes: k.Scopes, View: k.View}
}

// Event is the event that the key was made or revoked.
func (k Key) Event(change string) Event {
	return Event{Kind: EventKey, Tool: k.Name, View: k.View, Details: map[string]string{"change": change, "id": k.ID}}
}
