package clients

import "path"

// Listing is what a client was seen to do with its list of tools, when the program
// itself ran against this one.
type Listing struct {
	ID       string // Client.ID
	Announce string // how it names itself to servers (clientInfo.name); a pattern of path.Match
	// Relists says that it asks for its list again, within the call that changed it. The
	// others may be spared the change.
	Relists bool
	// Awaits says that it takes that list in before it goes on with the answer of the call:
	// in 32 retrievals, 24 of them on a busy machine, none was answered too early.
	Awaits bool
}

// Listings are of versions that docs/clients.md names.
var Listings = []Listing{
	{ID: "opencode", Announce: "opencode", Relists: true, Awaits: true},
	{ID: "gemini", Announce: "gemini-cli-mcp-client*", Relists: true},
	{ID: "claude-code", Announce: "claude-code"}, // 2026-07-28, as Copilot CLI: its list is not its own
	{ID: "codex", Announce: "codex-mcp-client"},
	{ID: "qwen", Announce: "qwen-cli-mcp-client*"},
	{ID: "copilot", Announce: "copilot-cli"},
	{ID: "cline-cli", Announce: "@cline/core"},
	{ID: "continue", Announce: "continue-cli-client"},
}

// ListingOf finds the Listing of a client by how it names itself, with its version or
// without; nil if it was not seen.
func ListingOf(announced string) *Listing {
	for i := range Listings {
		if Announces(Listings[i].Announce, announced) {
			return &Listings[i]
		}
	}
	return nil
}

// Awaits is Listing.Awaits, false for a client that was not seen.
func Awaits(announced string) bool {
	l := ListingOf(announced)
	return l != nil && l.Awaits
}

// Announces reports whether a client that names itself announced, "name version", is
// the one that a user calls name: by its ID, as it names itself, or by a pattern of that.
func Announces(name, announced string) bool {
	for _, l := range Listings {
		if l.ID == name {
			name = l.Announce
		}
	}
	for _, pattern := range []string{name, name + " *"} {
		if is, _ := path.Match(pattern, announced); is {
			return true
		}
	}
	return false
}
