package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// named gives a command another name.
func named(name string, cmd *cobra.Command) *cobra.Command {
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	cmd.Use = strings.TrimSpace(name + " " + arguments)
	return cmd
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

// alsoAs adds a flag to cmd that runs other. The flags of other become flags of cmd.
func alsoAs(cmd *cobra.Command, flag, usage string, other *cobra.Command) {
	on := cmd.Flags().Bool(flag, false, usage)
	other.Flags().VisitAll(func(f *pflag.Flag) {
		if cmd.Flags().Lookup(f.Name) == nil {
			cmd.Flags().AddFlag(f)
		}
	})
	run, valid := cmd.RunE, cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *on {
			return other.Args(cmd, args)
		}
		return valid(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *on {
			return runAs(cmd, other, args)
		}
		return run(cmd, args)
	}
}

// runAs runs other with the streams, the context and the flags of cmd.
func runAs(cmd, other *cobra.Command, args []string) error {
	var failed error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if to := other.Flags().Lookup(f.Name); to != nil && to != f {
			failed = errors.Join(failed, other.Flags().Set(f.Name, f.Value.String()))
		}
	})
	if failed != nil {
		return failed
	}
	other.SetContext(cmd.Context())
	other.SetIn(cmd.InOrStdin())
	other.SetOut(cmd.OutOrStdout())
	other.SetErr(cmd.ErrOrStderr())
	return other.RunE(other, args)
}
