package configs

import (
	"slices"

	"toolfinch/configs/clients"
	"toolfinch/internal/document"
)

var clientKeys = section[Client]{keys: keys{{
	name: "register", without: "what was measured of the client",
	doc:   "when tools that it has found are put into its list",
	value: in(func(c *Client) *Register { return &c.Register }).is(choice[Register]{words: []Register{RegisterAtOnce, RegisterBest, RegisterWhenUsed, RegisterNever}}),
}, {
	name: "era", without: "what was measured of the client",
	doc:   "the protocol for a client that knows 2026-07-28, too: `legacy` gives it a session with a list of its own, `auto` what it asks for",
	value: in(func(c *Client) *Era { return &c.Era }).is(choice[Era]{words: []Era{EraLegacy, EraAuto}}),
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

// checkClients warns of settings of clients without effect.
func (d *decoder) checkClients(c *Config) {
	from, given := d.origins["clients"]
	switch {
	case !given || !from.ok:
	case c.Routing != RoutingAuto && slices.ContainsFunc(c.Clients, func(client Client) bool { return client.Register != "" }):
		d.warn(from.node, from.label+" (register) is not used with routing_type "+string(c.Routing), "AUTO goes by it")
	default:
		for _, client := range c.Clients {
			if client.Register == "" && client.Era == "" {
				d.warn(from.node, from.label+"."+shorten(client.Name)+" says nothing", "write register: at_once, best, when_used or never; or era: legacy or auto")
			}
		}
	}
}
