package identity

import (
	"crypto/rand"
	"strings"
	"time"
)

// Key is an API key as it is stored, without its text.
type Key struct {
	Name           string   // unique among the present keys; policies call the key "key|NAME"
	ID             string   // ID of its principal; no other key ever has it
	Hash           [32]byte // SHA-256 of the key
	View           string   // the only view that the key opens, "" for any
	Scopes, Groups []string // sorted, without duplicates
	Created        time.Time
	Expires        time.Time // zero: never
	Used           time.Time // last use, to the minute; zero: never
}

// NewKeyID makes the ID of a key: "key|NAME|", and a unique random text.
func NewKeyID(name string) string {
	return From(KeySource, name+sourceEnds+strings.ToLower(rand.Text()[:16])) // 80 random bits
}

// Expired reports whether the key has expired.
func (k Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// Principal returns the principal of requests with the key.
func (k Key) Principal() *Principal {
	return &Principal{ID: k.ID, Groups: AllFrom(KeySource, k.Groups), Scopes: k.Scopes, View: k.View}
}

// Event returns the event that the key was made or revoked.
func (k Key) Event(change string) Event {
	return Event{Kind: EventKey, Tool: k.Name, View: k.View, Details: map[string]string{"change": change, "id": k.ID}}
}
