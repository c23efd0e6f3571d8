package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
)

func newServer(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "List, add, remove, show and restart servers, and log in to them",
		Long: `The servers of the configuration. Add, remove, enable and disable edit the configuration
file in place: comments, order and layout stay. A change that would break the file is not
written. Restart and logs ask the toolfinch that runs.`,
	}
	cmd.AddCommand(newServerList(s), newServerAdd(s), newServerRemove(s), newServerShow(s), newServerSwitch(s, true), newServerSwitch(s, false),
		newServerRestart(s), newServerLogs(s), newLogin(s))
	return cmd
}

func newServerAdd(s *settings) *cobra.Command {
	var env, headers []string
	var server clients.Server
	var f registryFlags
	cmd := &cobra.Command{
		Use:   "add NAME {COMMAND [ARG]... | --url URL}",
		Short: "Add a server to the configuration, by its command, its URL, or its name in the MCP registry",
		Long: `Add writes a server into the configuration, after the existing servers. Without a
configuration it creates your own. Flags of add stand before the command:
everything after it belongs to it. Texts are written unchanged: '${NAME}' is an
environment variable, $${ stands for ${ itself.

A NAME with a slash is a name in the registry (toolfinch registry finds them). Add takes
the first package whose program is on this machine: npm starts with npx, pypi with uvx,
oci with docker, nuget with dnx. --set gives a value that the server needs. For a value
without --set, the configuration gets an environment variable, ${NAME}, and add names it.
A package is refused if its publisher could start another program: with options of npx,
uvx or docker, or with variables such as NODE_OPTIONS and PATH. Add shows everything that
it writes.`,
		Example: `  toolfinch server add files npx -y @modelcontextprotocol/server-filesystem .
  toolfinch server add github --url https://mcp.example.com/mcp --header 'Authorization=Bearer ${GITHUB_TOKEN}'
  toolfinch server add notion --env 'TOKEN=${NOTION_TOKEN}' --disabled npx -y notion-mcp
  toolfinch server add io.github.modelcontextprotocol/filesystem --as files --set target_dir=/srv/docs`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			server.Name = args[0]
			if err := flags.Parse(args[1:]); err != nil { // the flags between NAME and the command
				return cmd.FlagErrorFunc()(cmd, err)
			}
			if help, _ := flags.GetBool("help"); help {
				return cmd.Help()
			}
			command := flags.Args()
			fromRegistry := strings.Contains(server.Name, "/") && len(command) == 0 && server.URL == ""
			for _, name := range ofRegistry {
				if flags.Changed(name) && !fromRegistry {
					return &exitError{exitUsage, fmt.Errorf("--%s is for a server of the registry, whose name has a slash: toolfinch registry finds it", name)}
				}
			}
			switch {
			case fromRegistry:
				if len(env)+len(headers) > 0 || server.Description != "" || server.Disabled {
					return &exitError{exitUsage, errors.New("the registry says how a server of it starts: give its values with --set")}
				}
				return s.addFromRegistry(cmd, &f, server.Name)
			case len(command) == 0 && server.URL == "":
				return &exitError{exitUsage, fmt.Errorf("say what server %q is: its command after the name, or --url", server.Name)}
			case len(command) > 0 && server.URL != "":
				return &exitError{exitUsage, errors.New("a server has a --url or a command: leave out one")}
			case len(command) > 0:
				server.Command, server.Args = command[0], command[1:]
			}
			path, err := s.editedFile(true)
			if err != nil {
				return err
			}
			server.Command = seenFrom(server.Command, filepath.Dir(path))
			if server.Env, err = pairs("--env", env, "="); err != nil {
				return err
			}
			if server.Headers, err = pairs("--header", headers, "=:"); err != nil {
				return err
			}
			if err := configs.AddServerUnset(path, server); err != nil {
				return editError(err)
			}
			if unset := configs.Unset(textsOf(server)...); len(unset) > 0 && !server.Disabled {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s not set here: toolfinch leaves %q out where that is so\n", isOrAre(unset), server.Name)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "added server %q to %s\n", server.Name, shown(path))
			return err
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // the flags of the command are not ours
	flags.StringVar(&server.URL, "url", "", "the `URL` of a server behind HTTP")
	flags.StringArrayVar(&env, "env", nil, "a variable for the command, `NAME=VALUE`; may be repeated")
	flags.StringArrayVar(&headers, "header", nil, "a header for the URL, `NAME=VALUE`; may be repeated")
	flags.StringVar(&server.Description, "description", "", "the purpose of the server, searched with its tools")
	flags.BoolVar(&server.Disabled, "disabled", false, "add it disabled")
	f.adding(cmd)
	return cmd
}

func newServerRemove(s *settings) *cobra.Command {
	cmd := s.editing("remove", func(_ *cobra.Command, path, name string) (string, error) {
		return fmt.Sprintf("removed server %q from %s", name, shown(path)), configs.RemoveServer(path, name)
	})
	cmd.Short = "Remove a server from the configuration"
	cmd.Long = `Remove takes a server out of the configuration, with the comments directly above it.`
	cmd.Example = "  toolfinch server remove github"
	return cmd
}

func newServerSwitch(s *settings, on bool) *cobra.Command {
	verb, short := "disable", "Disable a server, and keep it in the configuration"
	if on {
		verb, short = "enable", "Enable a disabled server"
	}
	cmd := s.editing(verb, func(_ *cobra.Command, path, name string) (string, error) {
		changed, err := configs.SetEnabled(path, name, on)
		if !changed {
			return fmt.Sprintf("server %q is %sd already", name, verb), err
		}
		return fmt.Sprintf("%sd server %q in %s", verb, name, shown(path)), err
	})
	cmd.Short = short
	cmd.Example = "  toolfinch server " + verb + " github"
	return cmd
}

// editing returns a command that edits the configuration. do makes the edit, and returns a line to print.
func (s *settings) editing(verb string, do func(cmd *cobra.Command, path, name string) (said string, err error)) *cobra.Command {
	return &cobra.Command{
		Use:  verb + " NAME",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := s.editedFile(false)
			if err != nil {
				return err
			}
			said, err := do(cmd, path, args[0])
			if err != nil {
				return editError(err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
}

// editedFile returns the path of the configuration to edit. Without one, make returns the user's own
// instead of an error.
func (s *settings) editedFile(make bool) (string, error) {
	path, err := configs.Find(configs.Options{Path: s.config})
	if make && errors.Is(err, configs.ErrNoConfig) {
		return configs.UserFile()
	}
	return path, err
}

// editError gives the exit code exitUsage to errors of a wrong name or a missing file.
func editError(err error) error {
	if _, ok := errors.AsType[*configs.NameError](err); ok || errors.Is(err, fs.ErrNotExist) {
		return &exitError{exitUsage, err}
	}
	return err
}

// textsOf returns a server's texts that may contain variables.
func textsOf(s clients.Server) []string {
	texts := append([]string{s.Command, s.Cwd, s.URL}, s.Args...)
	return slices.Concat(texts, slices.Collect(maps.Values(s.Env)), slices.Collect(maps.Values(s.Headers)))
}

// isOrAre returns "A is", or "A and B are".
func isOrAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, " and ") + " are"
}

// shown returns a path for display: relative to the working directory if it is inside.
func shown(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if rest, ok := strings.CutPrefix(path, dir+string(filepath.Separator)); ok {
		return rest
	}
	return path
}

// seenFrom makes a relative path of the command line absolute, unless the configuration
// is in the working directory: the file's paths start at its folder.
func seenFrom(command, folder string) string {
	if !clients.IsRelativeCommand(command) {
		return command
	}
	if here, err := os.Getwd(); err != nil || samePath(here, folder) {
		return command
	}
	abs, err := filepath.Abs(command)
	if err != nil {
		return command
	}
	return abs
}

// pairs reads the values of a flag: name, one of the separators, value. Messages never
// repeat the value, because it may be a secret.
func pairs(flag string, given []string, separators string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	all := make(map[string]string, len(given))
	for i, pair := range given {
		at := strings.IndexAny(pair, separators)
		if at <= 0 {
			return nil, &exitError{exitUsage, fmt.Errorf("%s %d of %d is no NAME=VALUE", flag, i+1, len(given))}
		}
		name, value := pair[:at], pair[at+1:]
		if pair[at] == ':' {
			value = strings.TrimLeft(value, " ")
		}
		if _, twice := all[name]; twice {
			return nil, &exitError{exitUsage, fmt.Errorf("%s names %s twice", flag, name)}
		}
		all[name] = value
	}
	return all, nil
}
