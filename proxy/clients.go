package proxy

import (
	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/register"
)

// registers says when found tools are registered for a client ("name version"). A list
// that changes costs a client with a prompt cache the whole conversation once, and a call
// through call_tool a few tokens; so AUTO registers at once only for clients that were
// never seen, which may not use call_tool well, and that list again when they are told to.
func registers(config *configs.Config) func(client string) register.When {
	switch config.Routing {
	case configs.RoutingCallTool:
		return nil
	case configs.RoutingDynamic:
		return func(string) register.When { return register.AtOnce }
	}
	return func(client string) register.When {
		for _, c := range config.Clients {
			if c.Register != "" && clients.Announces(c.Name, client) {
				return register.When(c.Register)
			}
		}
		switch seen := clients.ListingOf(client); {
		case seen == nil:
			return register.Tried
		case seen.Relists:
			return register.WhenUsed
		}
		return register.Never
	}
}
