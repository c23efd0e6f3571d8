package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
)

func newConfig(s *settings) *cobra.Command {
	var resolved bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration in effect",
		Long: `Config --resolved prints the configuration that serve would use: variables replaced,
defaults filled in, environment and flags applied, paths absolute. Secrets are masked
as ***. The first line is the path of the file. Nothing is started.

--schema prints the JSON Schema of a configuration file. Editors use it to complete keys
and values, explain them, and mark mistakes. Name it in the first line of a YAML file
(# yaml-language-server: $schema=toolfinch.schema.json), or under "$schema" in JSON.`,
		Example: `  toolfinch config --resolved
  toolfinch config --schema > toolfinch.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !resolved {
				return cmd.Help()
			}
			config, err := s.readOnly(cmd)
			if err != nil {
				return err
			}
			if asJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), config.ResolvedJSON())
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), config.Resolved())
			return err
		},
	}
	cmd.Flags().BoolVar(&resolved, "resolved", false, "print the configuration with defaults and variables filled in, secrets masked")
	withJSON(cmd, "as JSON")
	alsoAs(cmd, "schema", "print the JSON Schema of the configuration, for editors", newConfigSchema())
	cmd.AddCommand(unlisted(newConfigSchema())...)
	return cmd
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printJSON(cmd.OutOrStdout(), configs.Schema())
		},
	}
}

// readOnly reads the configuration as serve does, and prints its warnings. Unlike read, it changes no log level, and
// leaves all servers in.
func (s *settings) readOnly(cmd *cobra.Command) (*configs.Config, error) {
	config, err := configs.Load(configs.Options{Path: s.config, Flags: s.given(), Vault: s.readVault})
	if untrusted, ok := errors.AsType[*configs.UntrustedError](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), "only read:", untrusted)
		// Without the vault: the store may be at an address of the configuration.
		config, err = configs.Load(configs.Options{Path: s.config, Flags: s.given(), Untrusted: true})
	}
	if err != nil {
		return nil, err
	}
	for _, broken := range config.Broken {
		fmt.Fprintln(cmd.ErrOrStderr(), "left out:", broken)
	}
	for _, warning := range config.Warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
	}
	return config, nil
}

func newTrust() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:    "trust [FILE]",
		Hidden: true,
		Short:  "Trust the configuration in this folder",
		Long: `A configuration starts programs. So toolfinch reads one that it finds in the working
folder only if you trust it: its path and its present bytes. Edits through toolfinch keep
trust; after any other edit, toolfinch asks again. A file named by --config or
MCPPROXY_CONFIG and your own configuration need no trust. The hash covers the
configuration, not the programs, hooks and policies that it names.`,
		Example: "  toolfinch trust\n  toolfinch trust --undo ../other/toolfinch.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := configs.FolderFile()
			if len(args) > 0 {
				path = args[0]
			}
			if path == "" {
				return &exitError{exitUsage, errors.New("this folder has no configuration: name the file")}
			}
			list, err := configs.UserTrusted()
			if err != nil {
				return err
			}
			path, err = configs.Find(configs.Options{Path: path}) // makes it absolute
			if err != nil {
				return err
			}
			if undo {
				if err := list.Remove(path); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "no longer trusted: %s\n", path)
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if err := list.Add(path, data); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "trusted: %s\n", path)
			describeTrust(cmd.OutOrStdout(), path, data)
			return nil
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "end the trust in the file")
	return cmd
}

// maxTrustLines bounds the lines of a question about trust.
const maxTrustLines = 200

// describeTrust prints what the configuration starts and where it connects, as it is written. Secrets are masked. What
// it does not show, it says.
func describeTrust(w io.Writer, path string, data []byte) {
	starts, err := configs.Starts(path, data)
	if err != nil {
		fmt.Fprintln(w, "  it could not be shown what it runs: read the file")
		return
	}
	columns := 100
	if screen := screenOf(w); screen.columns > 0 {
		columns = screen.columns
	}
	var lines []string
	masked := false
	for _, text := range starts {
		masked = masked || strings.Contains(text, "***")
		for i, line := range wrap(visible(oneLine(text)), columns-4) {
			indent := "  "
			if i > 0 {
				indent = "    "
			}
			lines = append(lines, indent+line)
		}
	}
	for _, line := range lines[:min(len(lines), maxTrustLines)] {
		fmt.Fprintln(w, line)
	}
	if masked {
		fmt.Fprintln(w, "  *** hides what looks like a secret: read it in the file")
	}
	if more := len(lines) - maxTrustLines; more > 0 {
		fmt.Fprintf(w, "  and %d more lines, which may be commands: read them in the file\n", more)
	}
}

// trusting calls read. If the configuration is not trusted, a person at the terminal is asked, and read is called again.
// A reload does not ask: the terminal shows the log then.
func (s *settings) trusting(cmd *cobra.Command, read func() (*configs.Config, error)) (*configs.Config, error) {
	config, err := read()
	untrusted, ok := errors.AsType[*configs.UntrustedError](err)
	if !ok {
		return config, err
	}
	refused := &exitError{exitUsage, untrusted}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || s.found || !onTerminal(in) || !onTerminal(unfiltered(cmd.ErrOrStderr())) {
		return nil, refused
	}
	stderr := cmd.ErrOrStderr()
	what := "was found in this folder"
	if untrusted.Known {
		what = "has changed since you trusted it"
	}
	fmt.Fprintf(stderr, "%s %s. toolfinch would start or connect to:\n", untrusted.Path, what)
	describeTrust(stderr, untrusted.Path, untrusted.Data)
	fmt.Fprint(stderr, "Do you trust it? [y/N] ")
	if yes, _ := answer(cmd.Context(), in); !yes { // no answer is no trust
		return nil, refused
	}
	list, err := configs.UserTrusted()
	if err != nil {
		return nil, err
	}
	if err := list.Add(untrusted.Path, untrusted.Data); err != nil {
		return nil, err
	}
	return read()
}
