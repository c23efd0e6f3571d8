package configs

// Client is what the configuration says of a client.
type Client struct {
	Name     string // an ID of package clients, or a pattern of how clients name themselves
	Register Register
}

// Register is when tools that a client has found are registered for it.
type Register string

// RegisterAtOnce: with the answer. RegisterWhenUsed: once they were called, when its
// list changes anyway, and for its next sessions. RegisterNever: its list stays.
const (
	RegisterAtOnce   Register = "at_once"
	RegisterWhenUsed Register = "when_used"
	RegisterNever    Register = "never"
)

var clientKeys = section[Client]{keys: keys{{
	name: "register", without: "what was measured of the client",
	doc:   "when tools that it has found are put into its list",
	value: in(func(c *Client) *Register { return &c.Register }).is(choice[Register]{words: []Register{RegisterAtOnce, RegisterWhenUsed, RegisterNever}}),
}}}

var clientList = named[Client]{
	noun: "client", of: "names of clients to settings",
	item:  clientKeys,
	fresh: func(p pair) Client { return Client{Name: p.key.text} },
	name:  func(c *Client) string { return c.Name },
	check: func(d *decoder, key *node, label string) { glob(d, key, label, &key.text) },
}
