package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// onlyGroup is the key of an annotation of commands that do nothing themselves: they group others.
const onlyGroup = "group"

// section is a part of the help: a title, and the paths of commands.
type section struct {
	title string
	paths []string
}

// firstScreen is what a newcomer needs, in the order of the first hour. All other commands are behind help --all.
var firstScreen = []section{
	{"Begin", []string{"setup", "connect", "serve"}},
	{"Servers", []string{"server list", "server add", "server remove", "server show", "server restart", "server logs", "server login"}},
	{"Tools", []string{"tool list", "tool show", "tool hide", "tool unhide", "search", "call"}},
	{"Look", []string{"status", "ui"}},
}

// addHelp makes the help of the root command the first screen, and adds the command help.
func addHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd != root {
			help(cmd, args)
			return
		}
		_ = printScreen(cmd.OutOrStdout(), root, false)
	})
	var all bool
	cmd := &cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Show the help of a command, or with --all every command",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				return printScreen(cmd.OutOrStdout(), root, true)
			}
			of, left, err := root.Find(args)
			if err != nil || len(left) > 0 {
				return &exitError{exitUsage, fmt.Errorf("%w\nSee: %s help --all", knownCommand(of, left), root.Name())}
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show every command")
	root.SetHelpCommand(unlisted(cmd)[0])
	root.InitDefaultHelpCmd()
}

// printScreen prints the first screen or, with all, every command that is not hidden.
func printScreen(w io.Writer, root *cobra.Command, all bool) error {
	about, codes, _ := strings.Cut(root.Long, "\n\n")
	fmt.Fprintf(w, "%s\n", about)
	sections := firstScreen
	if all {
		sections = append(sections, section{"More", otherPaths(root)})
	}
	for _, one := range sections {
		fmt.Fprintf(w, "\n%s:\n", one.title)
		t := &table{indent: "  ", whole: true}
		for _, path := range one.paths {
			if cmd, _, err := root.Find(strings.Fields(path)); err == nil {
				t.add(path, cmd.Short)
			}
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	if all {
		fmt.Fprintf(w, "\nFlags of all commands:\n%s\n%s\n", strings.TrimRight(root.LocalFlags().FlagUsages(), "\n"), "\n"+codes)
	}
	_, err := fmt.Fprintf(w, "\nHelp of a command: %[1]s COMMAND --help. %[2]s\n", root.Name(), map[bool]string{
		false: "All commands and flags: " + root.Name() + " help --all.",
		true:  "Commands for packages, scripts and measurements are in docs/cli.md.",
	}[all])
	return err
}

// otherPaths returns the paths of the commands that are not hidden and not on the first screen.
func otherPaths(root *cobra.Command) (paths []string) {
	first := map[string]bool{}
	for _, one := range firstScreen {
		for _, path := range one.paths {
			first[path] = true
		}
	}
	for _, path := range listed(root) {
		if !first[path] {
			paths = append(paths, path)
		}
	}
	return paths
}

// listed returns the paths of the commands below cmd that are not hidden and do something.
func listed(cmd *cobra.Command) (paths []string) {
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() {
			continue
		}
		if _, group := below.Annotations[onlyGroup]; !group {
			paths = append(paths, strings.TrimPrefix(below.CommandPath(), below.Root().Name()+" "))
		}
		paths = append(paths, listed(below)...)
	}
	return paths
}
