package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// unlisted hides commands from help and completion: old names, what machines call, and what developers measure.
func unlisted(commands ...*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		cmd.Hidden = true
	}
	return commands
}

// named gives a command another name.
func named(name string, cmd *cobra.Command) *cobra.Command {
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	cmd.Use = strings.TrimSpace(name + " " + arguments)
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

func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q for %s", args[0], cmd.CommandPath())
	near := calledSo(cmd, args[0])
	if len(near) == 0 {
		near = unique(cmd.SuggestionsFor(args[0]))
	}
	if len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	return err
}

// otherNames are other programs' names of our commands.
var otherNames = map[string][]string{
	"serve":          {"start", "run", "up", "server-start", "proxy"},
	"ui":             {"web", "dashboard", "open", "page"},
	"status":         {"ps", "top", "monitor", "watch"},
	"server list":    {"ls"},
	"tool list":      {"ls"},
	"tool show":      {"describe", "inspect", "info", "schema"},
	"tool hide":      {"block", "deny", "exclude"},
	"search":         {"find", "query", "retrieve"},
	"call":           {"exec", "execute", "invoke"},
	"reindex":        {"index", "refresh", "sync", "update"},
	"validate":       {"check", "doctor", "lint", "test"},
	"stop":           {"down", "kill", "shutdown"},
	"setup":          {"install"},
	"connect":        {"install"},
	"server login":   {"auth", "authenticate", "signin", "signout"},
	"server restart": {"reconnect", "reload"},
	"server remove":  {"rm", "delete"},
	"server add":     {"install", "new", "create"},
	"registry":       {"browse", "marketplace", "catalog"},
	"savings":        {"stats", "usage"},
	"config":         {"where"},
	"audit":          {"log", "tail", "grep"},
	"pins":           {"held", "approvals", "quarantine", "review"},
	"secret set":     {"put"},
	"secret rm":      {"unset"},
}

// calledSo returns the paths below cmd of commands with this name: at a deeper level, or in other programs.
func calledSo(cmd *cobra.Command, name string) (paths []string) {
	name = strings.ToLower(name)
	root := cmd.Root().CommandPath() + " "
	var walk func(*cobra.Command)
	walk = func(below *cobra.Command) {
		for _, c := range below.Commands() {
			if !c.IsAvailableCommand() {
				continue
			}
			if c.Name() == name && below != cmd || slices.Contains(otherNames[strings.TrimPrefix(c.CommandPath(), root)], name) {
				paths = append(paths, strings.TrimPrefix(c.CommandPath(), cmd.CommandPath()+" "))
			}
			walk(c)
		}
	}
	walk(cmd)
	return paths
}

// plainly says in our words what cobra says of a wrong number of arguments.
func plainly(cmd *cobra.Command, given []string, err error) error {
	text := err.Error()
	usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	switch {
	case strings.HasPrefix(text, "unknown command") && !cmd.HasAvailableSubCommands():
		return fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), given[0])
	case !strings.Contains(text, " arg(s), "):
		return err
	case len(given) == 0:
		return fmt.Errorf("an argument is missing: %s", usage)
	}
	return fmt.Errorf("%s, which is not the right number: %s", plural(len(given), "argument"), usage)
}
