package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"toolfinch/configs"
)

func newConfig(s *settings) *cobra.Command {
	var resolved, asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration in effect",
		Long: `Config --resolved prints the configuration that serve would use: variables replaced,
defaults filled in, environment and flags applied, paths absolute. Secrets are masked
as ***. The first line is the path of the file. Nothing is started.`,
		Example: `  toolfinch config --resolved
  toolfinch config schema > toolfinch.schema.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !resolved {
				return cmd.Help()
			}
			config, err := s.readOnly(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), config.ResolvedJSON())
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), config.Resolved())
			return err
		},
	}
	cmd.Flags().BoolVar(&resolved, "resolved", false, "print the configuration with defaults and variables filled in, secrets masked")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	schema := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: `Schema prints the JSON Schema of a configuration file. Editors use it to complete keys
and values, explain them, and mark mistakes. Name it in the first line of a YAML file,
or under "$schema" in JSON.`,
		Example: `  toolfinch config schema > toolfinch.schema.json
  # yaml-language-server: $schema=toolfinch.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printJSON(cmd.OutOrStdout(), configs.Schema())
		},
	}
	cmd.AddCommand(schema)
	return cmd
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
