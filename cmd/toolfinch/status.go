package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/discovery"
	"toolfinch/internal/leeway"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/web"
)

// Bounds of status --watch.
const (
	watchEvery    = 2 * time.Second
	minWatchEvery = 200 * time.Millisecond
)

// statusFlags select the toolfinch to ask, and the form of the answer.
type statusFlags struct {
	url, keyEnv string
	watch       bool
	interval    time.Duration
}

func newStatus(s *settings) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:         "status",
		Annotations: map[string]string{whenInterrupted: "it runs on"},
		Short:       "Show what the running toolfinch does",
		Long: `Status asks each toolfinch that runs with this configuration, over stdio or HTTP. It
shows the servers with faults and the remedy, all servers, connected clients, running
calls, and the last errors with reasons. --watch repeats it until Ctrl-C.

--url asks a toolfinch on another machine, over its REST API, for what the key may see
in the view of the URL (default: /mcp). The key is read from an environment variable,
because other programs can see a command line.

Exit codes: 0 a toolfinch runs, 3 none runs.`,
		Example: `  toolfinch status
  toolfinch status --watch
  toolfinch status --json | jq -r '.running[].servers[] | select(.state != "ready") | .name'
  toolfinch status --url https://tools.example.com --key-env TOOLFINCH_KEY`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ask, err := s.statusOf(cmd, f)
			if err != nil {
				return err
			}
			if f.watch || cmd.Flags().Changed("interval") {
				if f.interval < minWatchEvery {
					return &exitError{exitUsage, fmt.Errorf("--interval must be at least %s", minWatchEvery)}
				}
				return watchStatus(cmd, ask, f)
			}
			found, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON(cmd) {
				err = printJSON(cmd.OutOrStdout(), found)
			} else {
				_, err = unfiltered(cmd.OutOrStdout()).Write(found.text(screenOf(cmd.OutOrStdout()), true))
			}
			if err == nil && len(found.Running) == 0 {
				return &exitError{exitNotRunning, errors.New(found.none)}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.watch, "watch", "w", false, "repeat until Ctrl-C")
	flags.DurationVar(&f.interval, "interval", watchEvery, "how often to repeat; implies --watch")
	withJSON(cmd, "print one JSON object; one a line with --watch")
	flags.StringVar(&f.url, "url", "", "ask the toolfinch at this `URL`")
	flags.StringVar(&f.keyEnv, "key-env", "", "the `NAME` of a variable with the API key or access token for --url")
	return cmd
}

// found holds the answers of all running toolfinches.
type found struct {
	Running []web.Status `json:"running"`
	none    string       // message if there is no answer
	notes   []string     // further messages
}

// findLive returns the path of the configuration, and where its processes answer. The configuration is not read, because
// it may be broken or not trusted.
func (s *settings) findLive() (path string, at configs.Places, err error) {
	if path, err = configs.Find(configs.Options{Path: s.config, Untrusted: true}); err != nil {
		return "", at, err
	}
	at, err = configs.FindPlaces(configs.Options{Path: path, Flags: s.given()})
	return path, at, err
}

// statusOf returns a function that asks for the status that the flags name.
func (s *settings) statusOf(cmd *cobra.Command, f statusFlags) (func(context.Context) (found, error), error) {
	switch {
	case f.url == "" && f.keyEnv != "":
		return nil, &exitError{exitUsage, errors.New("--key-env is for --url")}
	case f.url != "":
		return remoteStatus(cmd, f)
	}
	path, at, err := s.findLive()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (found, error) {
		mine, others := askLive(ctx, at.DataDir, path)
		all := found{Running: []web.Status{}, none: "no toolfinch runs with " + shown(path) + ": an agent starts it (toolfinch connect), or toolfinch serve --port 8080"}
		for _, one := range mine {
			all.Running = append(all.Running, one.Status)
		}
		if len(mine) == 0 {
			all.none += lastFailures(ctx, at)
		}
		for _, one := range others {
			note := fmt.Sprintf("what runs with the same store, at %s, does not answer: %v", one.socket, one.silent)
			if one.silent == nil {
				note = fmt.Sprintf("process %d uses the same store, with %s: toolfinch status --config %s", one.PID, one.Configuration, one.Configuration)
			}
			all.notes = append(all.notes, note)
			all.none += "\n" + note
		}
		return all, nil
	}, nil
}

// remoteStatus returns a function that asks the toolfinch at a URL.
func remoteStatus(cmd *cobra.Command, f statusFlags) (func(context.Context) (found, error), error) {
	at, err := url.Parse(f.url)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" {
		return nil, &exitError{exitUsage, errors.New("--url must be like https://tools.example.com")}
	}
	// The URL for MCP clients (/mcp/VIEW) is accepted, too.
	base, view, _ := strings.Cut(strings.TrimSuffix(at.EscapedPath(), "/"), "/mcp")
	at = at.JoinPath() // a copy
	at.Path, at.RawPath = "", ""
	at = at.JoinPath(base, "api/status")
	if view, err = url.PathUnescape(strings.TrimPrefix(view, "/")); err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--url: %w", err)}
	}
	if view != "" {
		at.RawQuery = url.Values{"view": {view}}.Encode()
	}
	key, err := readKey(f.keyEnv)
	if err != nil {
		return nil, err
	}
	if key != "" && at.Scheme == "http" && !discovery.IsLoopback(at.Hostname()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "the key is sent unencrypted: --url is not https")
	}
	client := &http.Client{Timeout: remoteWait, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(ctx context.Context) (found, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return found{}, err
		}
		if key != "" {
			request.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := client.Do(request)
		if err != nil {
			if ctx.Err() != nil {
				return found{}, err
			}
			return found{Running: []web.Status{}, none: fmt.Sprintf("%v; is toolfinch serve running there?", err)}, nil
		}
		defer response.Body.Close()
		data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return found{}, err
		}
		var status web.Status
		if response.StatusCode != http.StatusOK || json.Unmarshal(data, &status) != nil || status.Started.IsZero() {
			return found{}, refusedStatus(response, data, key != "")
		}
		status.At = at.Host
		return found{Running: []web.Status{status}}, nil
	}, nil
}

// remoteWait bounds the wait for another machine's answer.
const remoteWait = 15 * time.Second

// refusedStatus explains another machine's refusal, and says what to do.
func refusedStatus(response *http.Response, data []byte, keyed bool) error {
	reason := rawjson.Text(rawjson.Member(data, "detail"))
	if reason == "" {
		reason = rawjson.Clip(string(data), 200)
	}
	advice := ""
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized && !keyed:
		advice = "; give a key: --key-env (toolfinch key create makes one)"
	case code == http.StatusNotFound && rawjson.Text(rawjson.Member(data, "detail")) == "":
		advice = "; is that a toolfinch, of this version or a later one, and not with rest_api: false?"
	case code == http.StatusOK:
		reason, advice = "", "; is that a toolfinch?"
	}
	return fmt.Errorf("%s answers with HTTP status %s: %s%s", response.Request.URL.Redacted(), response.Status, cmp.Or(strings.TrimSpace(printable.Line(reason)), "nothing that says more"), advice)
}

// readKey reads a key from an environment variable; "" without a variable.
func readKey(variable string) (string, error) {
	if variable == "" {
		return "", nil
	}
	key := strings.TrimSpace(os.Getenv(variable))
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &exitError{exitUsage, fmt.Errorf("there is no key in the variable %s", variable)}
	}
	return key, nil
}

// watchStatus repeats the status until ctx ends. On a terminal each status replaces the last one.
func watchStatus(cmd *cobra.Command, ask func(context.Context) (found, error), f statusFlags) error {
	ctx, out := cmd.Context(), unfiltered(cmd.OutOrStdout())
	inPlace := screenOf(out).terminal && !asJSON(cmd)
	if inPlace {
		if _, err := io.WriteString(out, "\x1b[?1049h\x1b[?25l"); err != nil { // the terminal's second screen, without a cursor
			return err
		}
		defer io.WriteString(out, "\x1b[?25h\x1b[?1049l")
	}
	for {
		now, err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !inPlace:
			return err
		case err != nil: // the next attempt may succeed
			now = found{none: err.Error()}
		}
		on := screenOf(out)
		switch {
		case asJSON(cmd):
			err = rawjson.Write(cmd.OutOrStdout(), now, "")
		case inPlace:
			_, err = out.Write(inFrame(now.text(on, false), on))
		default:
			_, err = out.Write(append(now.text(on, true), '\n'))
		}
		if err != nil {
			return err
		}
		if !leeway.Wait(ctx, f.interval) {
			return context.Cause(ctx)
		}
	}
}

// inFrame returns text that replaces the terminal's content. It drops the lines that do not fit.
func inFrame(text []byte, on screen) []byte {
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if on.rows > 1 && len(lines) > on.rows {
		left := len(lines) - on.rows + 1
		lines = append(lines[:on.rows-1:on.rows-1], on.paint(faint, fmt.Sprintf("... and %s: make the window taller, or toolfinch status", plural(left, "more line"))))
	}
	return []byte("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
}
