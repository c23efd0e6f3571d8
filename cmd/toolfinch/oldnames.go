package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// addOldNames adds the names that common commands had before, for scripts of users.
func addOldNames(root *cobra.Command, s *settings) {
	servers := named("servers", newServerList(s))
	servers.Args = nil
	servers.AddCommand(newServerAdd(s), newServerRemove(s), newServerSwitch(s, true), newServerSwitch(s, false))
	root.AddCommand(unlisted(servers, newTools(s), newLogin(s), newLogout(s), newVersion())...)
	for _, cmd := range root.Commands() {
		if cmd.Name() == "registry" {
			cmd.AddCommand(unlisted(named("search", newRegistry()), named("show", newRegistry()), newServerAdd(s))...)
		}
	}
}

// newTools is tool list and, with a name, tool show.
func newTools(s *settings) *cobra.Command {
	cmd, one := named("tools [SERVER.TOOL]", newToolList(s)), newToolShow(s)
	list := cmd.RunE
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return list(cmd, nil)
		case cmd.Flags().Changed("server"):
			return &exitError{exitUsage, errors.New("name a tool or --server, not both\nSee: toolfinch tool list --help")}
		}
		return runAs(cmd, one, args)
	}
	return cmd
}
