package clients

import "path"

// Listing is the measured behaviour of a client when its list of tools changes.
type Listing struct {
	ID       string // Client.ID
	Announce string // its name in clientInfo; a pattern of path.Match
	// Relists says that it asks for its list again within the call that changed it. Other
	// clients may be spared the change.
	Relists bool
	// Awaits says that it reads the new list before the answer of the call: in each of 32
	// retrievals and more, most of them on a busy machine.
	Awaits bool
	// Hurries says that it looks only at what was listed within a second of its start.
	Hurries bool
	// Loads says that it adds a newly listed tool with _meta["anthropic/alwaysLoad"] to the end of the conversation: the
	// cached beginning stays. It does so in sessions, so that it is kept from 2026-07-28.
	Loads bool
	// Unmended says that it passes input schemas on to the model's provider as they are, by public reports.
	Unmended bool
}

// Listings are measurements of the versions in docs/clients.md.
var Listings = []Listing{
	{ID: "opencode", Announce: "opencode", Relists: true, Awaits: true, Unmended: true},
	{ID: "gemini", Announce: "gemini-cli-mcp-client*", Relists: true},
	{ID: "claude-code", Announce: "claude-code", Relists: true, Awaits: true, Loads: true, Unmended: true},
	{ID: "codex", Announce: "codex-mcp-client", Hurries: true},
	{ID: "qwen", Announce: "qwen-cli-mcp-client*"},
	{ID: "copilot", Announce: "copilot-cli"}, // with 2026-07-28 it shares its list
	{ID: "cline-cli", Announce: "@cline/core"},
	{ID: "continue", Announce: "continue-cli-client"},
}

// ListingOf finds the Listing of a client by its name, with or without version; nil for an
// unmeasured client.
func ListingOf(announced string) *Listing {
	for i := range Listings {
		if Announces(Listings[i].Announce, announced) {
			return &Listings[i]
		}
	}
	return nil
}

// Awaits is Listing.Awaits, false for an unmeasured client.
func Awaits(announced string) bool {
	l := ListingOf(announced)
	return l != nil && l.Awaits
}

// Hurries is Listing.Hurries, false for an unmeasured client.
func Hurries(announced string) bool {
	l := ListingOf(announced)
	return l != nil && l.Hurries
}

// Unmended is Listing.Unmended, false for an unmeasured client.
func Unmended(announced string) bool {
	l := ListingOf(announced)
	return l != nil && l.Unmended
}

// Loads is Listing.Loads, false for an unmeasured client.
func Loads(announced string) bool {
	l := ListingOf(announced)
	return l != nil && l.Loads
}

// Prefixes reports whether a client puts a prefix like mcp__toolfinch__ in front of names: all measured agents do.
func Prefixes(announced string) bool { return ListingOf(announced) != nil }

// Announces reports whether a user's name for a client matches announced, "name version":
// the name is an ID, the client's own name, or a pattern over that.
func Announces(name, announced string) bool {
	for _, l := range Listings {
		if l.ID == name {
			name = l.Announce
		}
	}
	is, _ := path.Match(name, announced)
	versioned, _ := path.Match(name+" *", announced)
	return is || versioned
}
