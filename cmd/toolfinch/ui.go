package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"toolfinch/configs"
)

func newUI(s *settings) *cobra.Command {
	var noBrowser bool
	var pid int
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Open the page of the toolfinch that runs",
		Long: `Ui asks the toolfinch that serves this configuration over HTTP for a link to its page, which
lets you in once and within ten minutes, prints it, and opens it in a browser. Only the user
who runs toolfinch can ask for one.

Exit codes: 0 there is a link, 3 nothing runs that has the page.`,
		Example: `  toolfinch ui
  toolfinch ui --no-browser`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := configs.Find(configs.Options{Path: s.config})
			if err != nil {
				return err
			}
			dir, _, err := s.places()
			if err != nil {
				return err
			}
			processes, _ := askLive(cmd.Context(), dir, path)
			one, err := withPage(processes, pid, path)
			if err != nil {
				return err
			}
			link, err := one.pageLink(cmd.Context())
			if err != nil {
				return fmt.Errorf("process %d: %w", one.PID, err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), link)
			fmt.Fprintln(cmd.ErrOrStderr(), "the link lets one browser in, once and within ten minutes")
			if noBrowser {
				return nil
			}
			if err := openBrowser(link); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "no browser was opened (%v): open the link yourself\n", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the link and open nothing")
	cmd.Flags().IntVar(&pid, "pid", 0, "of several that run, the page of this `PROCESS`")
	return cmd
}

// withPage is the process whose page is meant: the only one that serves over HTTP, or that
// of a PID.
func withPage(processes []running, pid int, path string) (running, error) {
	const start = "toolfinch serve --port 8080"
	if len(processes) == 0 {
		return running{}, &exitError{exitNotRunning, fmt.Errorf("no toolfinch runs with %s: %s serves its page", shown(path), start)}
	}
	over := slices.DeleteFunc(slices.Clone(processes), func(r running) bool { return r.At == configs.TransportStdio })
	if len(over) == 0 {
		return running{}, &exitError{exitNotRunning, fmt.Errorf("what runs with %s serves an agent over stdio, where there is no page: %s serves one beside it", shown(path), start)}
	}
	if pid != 0 {
		over = slices.DeleteFunc(over, func(r running) bool { return r.PID != pid })
		if len(over) == 0 {
			return running{}, &exitError{exitUsage, fmt.Errorf("--pid: process %d is no toolfinch that serves %s over HTTP", pid, shown(path))}
		}
	}
	if len(over) > 1 {
		text := fmt.Sprintf("%d run with %s: choose one", len(over), shown(path))
		for _, one := range over {
			text += fmt.Sprintf("\n  toolfinch ui --pid %d    http://%s, up %s", one.PID, one.At, lasting(one.Now.Sub(one.Started)))
		}
		return running{}, &exitError{exitUsage, errors.New(text)}
	}
	return over[0], nil
}

// pageLink asks for a link to the page.
func (r running) pageLink(ctx context.Context) (string, error) {
	var answer struct {
		Link string `json:"link"` // path and query
	}
	if err := r.ask(ctx, http.MethodPost, "/link", &answer); err != nil {
		return "", err
	}
	return pageURL(r.At, answer.Link), nil
}

// pageURL is where a browser of this machine finds a path of what listens at an address.
func pageURL(at, path string) string { return "http://" + reachableAt(at) + path }
