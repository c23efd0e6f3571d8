package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"toolfinch/internal/leeway"

	"github.com/spf13/cobra"
)

func newLogs(s *settings) *cobra.Command {
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use:         "logs",
		Annotations: map[string]string{whenInterrupted: "it runs on"},
		Short:       "Show the log of the toolfinch that agents share",
		Long: `Logs prints the last lines of the log of the toolfinch that runs, or ran last, in the
background for this configuration. toolfinch server logs NAME has those of one server.`,
		Example: `  toolfinch logs
  toolfinch logs --follow
  toolfinch logs --lines 1000 | grep WARN`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 1 {
				return &exitError{exitUsage, errors.New("--lines must be at least 1")}
			}
			_, at, err := s.findLive()
			if err != nil {
				return err
			}
			return showLog(cmd.Context(), cmd.OutOrStdout(), logFile(at.DataDir), lines, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show further lines until Ctrl-C")
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "how many of the last lines")
	return cmd
}

// showLog prints the last lines of a log, and with follow those that are written later.
func showLog(ctx context.Context, out io.Writer, path string, lines int, follow bool) error {
	older, err := os.ReadFile(path + ".1")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{exitNotRunning, fmt.Errorf("there is no log: no toolfinch has run in the background with this configuration (%w)", err)}
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	text = append(older, text...)
	all := bytes.SplitAfter(text, []byte("\n"))
	if n := len(all) - 1; len(all[n]) == 0 { // after the last line break
		all = all[:n]
	}
	for _, line := range all[max(0, len(all)-lines):] {
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	for follow {
		if !leeway.Wait(ctx, followEvery) {
			return context.Cause(ctx)
		}
		if _, err := io.Copy(out, file); err != nil {
			return err
		}
		mine, err := file.Stat()
		if now, gone := os.Stat(path); err == nil && gone == nil && !os.SameFile(mine, now) { // rotated
			if _, err := io.Copy(out, file); err != nil {
				return err
			}
			next, err := os.Open(path)
			if err != nil {
				return err
			}
			_ = file.Close()
			file = next
		}
	}
	return nil
}
