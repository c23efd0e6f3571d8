package configs

import (
	"toolfinch/configs/clients"
	"toolfinch/configs/document"
)

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
	fresh: func(p document.Pair) Client { return Client{Name: p.Key.Text} },
	name:  func(c *Client) string { return c.Name },
	check: func(d *decoder, key *document.Node, label string) {
		var known []string
		for _, l := range clients.Listings {
			if known = append(known, l.ID); clients.Announces(key.Text, l.Announce) {
				known = nil
				break
			}
		}
		if glob(d, key, label, &key.Text) && known != nil {
			if hint := nearHint(key.Text, known); hint != "" {
				d.warn(key, label+" is no client that was measured, and is taken for one that names itself so", hint)
			}
		}
	},
}

// checkClients warns of settings of clients that nothing goes by.
func (d *decoder) checkClients(c *Config) {
	from, given := d.origins["clients"]
	switch {
	case !given || !from.ok:
	case c.Routing != RoutingAuto:
		d.warn(from.node, from.label+" is not used with routing_type "+string(c.Routing), "AUTO goes by it")
	default:
		for _, client := range c.Clients {
			if client.Register == "" {
				d.warn(from.node, from.label+"."+shorten(client.Name)+" says nothing", "write register: at_once, when_used or never")
			}
		}
	}
}
