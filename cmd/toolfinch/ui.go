package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
)

func newUI(s *settings) *cobra.Command {
	var noBrowser bool
	var pid int
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Open the page of the running toolfinch",
		Long: `Ui asks the running toolfinch for a link to its page, prints the link, and opens it in
a browser. The link works once, within ten minutes. Only the user who runs toolfinch
can get one. A toolfinch that serves agents over stdio opens a port of this machine
for its page, and serves nothing else there.

Exit codes: 0 there is a link, 3 no toolfinch runs.`,
		Example: `  toolfinch ui
  toolfinch ui --no-browser`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, at, err := s.findLive()
			if err != nil {
				return err
			}
			processes, _ := askLive(cmd.Context(), at.DataDir, path)
			one, err := withPage(processes, pid, path)
			if err != nil {
				return err
			}
			get := func(query string) (string, error) {
				link, err := one.pageLink(cmd.Context(), query)
				if err != nil {
					return "", fmt.Errorf("process %d: %w", one.PID, err)
				}
				return link, nil
			}
			link, missing := "", error(nil)
			if !noBrowser {
				if link, err = get("?here"); err != nil {
					return err
				}
				missing = openPage(at.DataDir, link)
			}
			if noBrowser || missing != nil { // the browser may be on another machine
				if link, err = get(""); err != nil {
					return err
				}
			}
			fmt.Fprintln(cmd.OutOrStdout(), link)
			fmt.Fprintln(cmd.ErrOrStderr(), "the link lets one browser in, once and within ten minutes")
			if missing != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "no browser was opened (%v): open the link yourself\n", missing)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the link and open nothing")
	cmd.Flags().IntVar(&pid, "pid", 0, "the page of this `PROCESS`, if several run")
	return cmd
}

// withPage returns the process that serves the page: the only one, or the process with pid.
func withPage(processes []running, pid int, path string) (running, error) {
	if len(processes) == 0 {
		return running{}, &exitError{exitNotRunning, fmt.Errorf("no toolfinch runs with %s: an agent starts it, or toolfinch serve --port 8080", shown(path))}
	}
	if pid != 0 {
		i := slices.IndexFunc(processes, func(r running) bool { return r.PID == pid })
		if i < 0 {
			return running{}, &exitError{exitUsage, fmt.Errorf("--pid: process %d is no toolfinch that serves %s", pid, shown(path))}
		}
		return processes[i], nil
	}
	if len(processes) > 1 {
		text := fmt.Sprintf("%d run with %s: choose one", len(processes), shown(path))
		for _, one := range processes {
			text += fmt.Sprintf("\n  toolfinch ui --pid %d    %s, up %s", one.PID, one.served(), lasting(one.Now.Sub(one.Started)))
		}
		return running{}, &exitError{exitUsage, errors.New(text)}
	}
	return processes[0], nil
}

// openPage opens a link in a browser. Other users may read the link in the browser's command line. On Linux toolfinch
// refuses the link to other users, and Windows hides command lines. On other systems the browser gets a private file
// that redirects to the link.
func openPage(dir, link string) error {
	if runtime.GOOS == "linux" || runtime.GOOS == "windows" {
		return openBrowser(link)
	}
	file, err := leadingTo(dir, link)
	if err != nil {
		return err
	}
	return openBrowser("file://" + file)
}

// leadingTo writes a file in dir that redirects to a link. It replaces the last such file.
func leadingTo(dir, link string) (file string, err error) {
	file = filepath.Join(dir, "open.html")
	text := `<!doctype html><meta http-equiv="refresh" content="0; url=` + html.EscapeString(link) + `"><title>toolfinch</title>`
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = out.WriteString(text)
	return file, errors.Join(err, out.Close())
}

// pageLink asks for a link to the page. The query "?here" restricts the link to this user.
func (r running) pageLink(ctx context.Context, query string) (string, error) {
	var answer struct {
		Link string `json:"link"`
	}
	err := r.ask(ctx, http.MethodPost, "/link"+query, &answer)
	return answer.Link, err
}

func pageURL(at, path string) string { return "http://" + reachableAt(at) + path }
