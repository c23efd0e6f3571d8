package main

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
)

//go:embed inithooks.star
var hooksExample string

//go:embed inithooks.py
var pythonExample string

// hooksLines make the example's functions the hooks of the default view.
const hooksLines = `tool_views:
  default:
    exposure_mode: retrieve
    include_all: true
    hooks:
      pre_call: hooks/example.star:pre_call
      post_call: hooks/example.star:post_call
`

// pythonLines make the functions and the tool of the Python example part of the default view.
const pythonLines = `tool_views:
  default:
    exposure_mode: retrieve
    include_all: true
    hooks:
      pre_call: hooks.example.pre_call
      post_call: hooks.example.post_call
    custom_tools:
      - module: hooks.example.call_together
`

func newInit(s *settings) *cobra.Command {
	var force, python bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a commented configuration, or an example of hooks",
		Long: `Init writes a configuration with every key and its default: your own, which toolfinch
finds from every folder, or the file named by --config. Init hooks writes hooks/example.star beside the
configuration, and with --python hooks/example.py. An existing file is overwritten only with --force.`,
		Example: "  toolfinch init\n  toolfinch init hooks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := configs.OwnFile(s.config)
			if err != nil {
				return err
			}
			if err := writeNew(path, configs.Example(), force); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: every key with its default; only mcp_servers is needed\n", shown(path))
			own, err := configs.UserFile()
			if err != nil || path == own {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "this is not your own configuration (%s): toolfinch reads it with --config, or without in %s\n", shown(own), filepath.Dir(path))
			list, err := configs.UserTrusted()
			if err != nil {
				return err
			}
			return list.Add(path, []byte(configs.Example()))
		},
	}
	cmd.PersistentFlags().BoolVar(&force, "force", false, "overwrite an existing file")
	hooks := &cobra.Command{
		Use:   "hooks",
		Short: "Write a commented example of hooks",
		Long: `Hooks writes hooks/example.star beside the configuration, or in the working directory,
and prints the configuration lines that use it. With --python it writes
hooks/example.py, which also has a custom tool and runs with python3.`,
		Example: "  toolfinch init hooks\n  toolfinch init hooks --python",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := s.editedFile(true)
			if err != nil {
				return err
			}
			name, text, lines := "example.star", hooksExample, hooksLines
			if python {
				name, text, lines = "example.py", pythonExample, pythonLines
			}
			path := filepath.Join(filepath.Dir(config), "hooks", name)
			if err := writeNew(path, text, force); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; to use it, write into %s:\n\n%s", shown(path), shown(config), lines)
			return err
		},
	}
	hooks.Flags().BoolVar(&python, "python", false, "write it in Python")
	cmd.AddCommand(hooks)
	return cmd
}

// writeNew writes a new file. It replaces an existing file only with force.
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
