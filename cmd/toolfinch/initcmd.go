package main

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/clients"
	"toolfinch/configs"
)

//go:embed inithooks.star
var hooksExample string

// hooksLines make the example's functions the hooks of the default view.
const hooksLines = `tool_views:
  default:
    exposure_mode: retrieve
    include_all: true
    hooks:
      pre_call: hooks/example.star:pre_call
      post_call: hooks/example.star:post_call
`

func newInit(s *settings) *cobra.Command {
	var force bool
	config := func(cmd *cobra.Command, _ []string) error {
		path := s.config
		if path == "" {
			path = "toolfinch.yaml"
		}
		if err := writeNew(path, configs.Example(), force); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: every key with its default; only mcp_servers is needed\n", path)
		return err
	}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a commented configuration, or an example of hooks",
		Long: `Init writes a configuration with every key and its default to toolfinch.yaml, or to
the file named by --config. Init hooks writes hooks/example.star beside the
configuration. A file that is there is not overwritten without --force.`,
		Example: "  toolfinch init\n  toolfinch init hooks",
		RunE:    config,
	}
	cmd.PersistentFlags().BoolVar(&force, "force", false, "overwrite a file that is there")
	cmd.AddCommand(&cobra.Command{
		Use:     "config",
		Short:   "Write a commented configuration with every key",
		Example: "  toolfinch init config --config ~/toolfinch.yaml",
		Args:    cobra.NoArgs,
		RunE:    config,
	}, &cobra.Command{
		Use:   "hooks",
		Short: "Write a commented example of hooks",
		Long: `Hooks writes hooks/example.star beside the configuration, or in the working
directory without one, and prints the lines that put it to use.`,
		Example: "  toolfinch init hooks",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := s.editedFile(true)
			if err != nil {
				return err
			}
			path := filepath.Join(filepath.Dir(config), "hooks", "example.star")
			if err := writeNew(path, hooksExample, force); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; to use it, write into %s:\n\n%s", shown(path), shown(config), hooksLines)
			return err
		},
	})
	return cmd
}

// writeNew writes a file of ours, over one that is there only if told to.
func writeNew(path, text string, force bool) error {
	before, err := clients.ReadFile(path)
	if err != nil || !force {
		before = nil
	}
	err = clients.Replace(path, before, []byte(strings.ReplaceAll(text, "\r\n", "\n")))
	if errors.Is(err, clients.ErrChanged) && !force {
		return fmt.Errorf("%s is there already; --force overwrites it", shown(path))
	}
	return err
}
