package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func newStop(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "End the toolfinch that agents share",
		Long: `Stop ends the toolfinch that runs in the background for this configuration, and its
servers. Calls in flight are told. The next message of an agent that is still there
starts another one.

Exit codes: 0 it has ended, 3 none runs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, at, err := s.findLive()
			if err != nil {
				return err
			}
			stopped, failed := 0, error(nil)
			mine, _ := askLive(cmd.Context(), at.DataDir, path)
			for _, one := range mine {
				if !one.Shared {
					fmt.Fprintf(cmd.ErrOrStderr(), "process %d (%s) is not in the background: end it where it was started\n", one.PID, one.served())
					continue
				}
				if err := one.ask(cmd.Context(), http.MethodPost, "/stop", &struct{}{}); err != nil {
					failed = errors.Join(failed, fmt.Errorf("process %d: %w", one.PID, err))
					continue
				}
				stopped++
				fmt.Fprintf(cmd.OutOrStdout(), "process %d ends, with %s connected\n", one.PID, plural(one.Sessions.All, "agent"))
			}
			if stopped == 0 && failed == nil {
				failed = &exitError{exitNotRunning, fmt.Errorf("no toolfinch runs in the background with %s", shown(path))}
			}
			return failed
		},
	}
}
