package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/web"
	"toolfinch/upstream"
)

// liveServers is what other commands ask a running toolfinch about its servers; *proxy.Proxy is one.
type liveServers interface {
	ServerLines(server string, after int64) (lines []upstream.Line, known bool)
	RestartServer(ctx context.Context, server string) (web.Upstream, error)
}

const (
	// restartWait bounds a restart: two attempts to connect, the calls in progress, and the lists.
	restartWait = 5 * time.Minute
	followEvery = 300 * time.Millisecond // between two questions of server logs -f
)

// restarted is the answer to a restart.
type restarted struct {
	Tools int    `json:"tools"`
	Error string `json:"error,omitempty"` // why the server does not answer
}

// answerServers answers other commands about servers.
func answerServers(mux *http.ServeMux, servers liveServers) {
	mux.HandleFunc("GET /servers/{name}/lines", func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // 0 for none
		lines, known := servers.ServerLines(r.PathValue("name"), after)
		if !known {
			http.Error(w, fmt.Sprintf("the running toolfinch has no server %q", r.PathValue("name")), http.StatusNotFound)
			return
		}
		_ = rawjson.Write(w, lines, "")
	})
	mux.HandleFunc("POST /servers/{name}/restart", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(leeway.Of(restartWait))) // fails for none of our writers
		now, err := servers.RestartServer(r.Context(), r.PathValue("name"))
		if errors.Is(err, web.ErrNoServer) {
			http.Error(w, fmt.Sprintf("the running toolfinch has no server %q", r.PathValue("name")), http.StatusNotFound)
			return
		}
		answer := restarted{Tools: now.Tools}
		if err != nil {
			answer.Error = err.Error()
		}
		_ = rawjson.Write(w, answer, "")
	})
}

// runningWith returns the processes that run with the configuration, the latest first, for a command about a server.
func (s *settings) runningWith(cmd *cobra.Command, server string) ([]running, error) {
	path, err := configs.Find(configs.Options{Path: s.config})
	if err != nil {
		return nil, err
	}
	var known []string
	servers, _ := configs.Servers(path) // the configuration is not loaded: the command must work after a broken edit
	for _, one := range servers {
		known = append(known, one.Name)
	}
	if len(known) > 0 {
		if err := among(known, nil, server); err != nil {
			return nil, err
		}
	}
	at, err := s.places()
	if err != nil {
		return nil, err
	}
	mine, _ := askLive(cmd.Context(), at.DataDir, path)
	if len(mine) == 0 {
		return nil, &exitError{exitNotRunning, fmt.Errorf("no toolfinch runs with %s, so %s does not run: toolfinch validate starts it once and says what is wrong", shown(path), server)}
	}
	return mine, nil
}

func newServerRestart(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "restart NAME",
		Short: "Restart a server in the running toolfinch",
		Long: `Restart connects to a server again, which starts its process anew, and lists its tools.
The old connection ends when its calls have ended, after 10 s at most. Exit codes: 1 the
server does not come up, 3 no toolfinch runs with this configuration.`,
		Example: `  toolfinch server restart github`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			processes, err := s.runningWith(cmd, args[0])
			if err != nil {
				return err
			}
			var failed []error
			for _, one := range processes {
				of := ""
				if len(processes) > 1 {
					of = fmt.Sprintf(" in process %d", one.PID)
				}
				bar := newBar(cmd.ErrOrStderr(), 1)
				bar.draw("waiting for " + args[0] + of)
				var now restarted
				err := one.askWithin(cmd.Context(), restartWait, http.MethodPost, "/servers/"+url.PathEscape(args[0])+"/restart", &now)
				bar.clear()
				switch {
				case err != nil:
					failed = append(failed, err)
				case now.Error != "":
					failed = append(failed, errors.New(now.Error))
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "restarted %s%s: %s\n", args[0], of, plural(now.Tools, "tool"))
				}
			}
			if err := errors.Join(failed...); err != nil {
				return &exitError{exitFailed, err}
			}
			return nil
		},
	}
}

func newServerLogs(s *settings) *cobra.Command {
	var follow bool
	var n int
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show what a server wrote, and what became of its connections",
		Long: `Logs asks the running toolfinch for its last 200 lines about a server: what the server's
process wrote to standard error, its log messages (notifications/message), and what became
of its connections, with secrets masked. -f follows until Ctrl-C. Exit code 3: no
toolfinch runs with this configuration.`,
		Example: `  toolfinch server logs github
  toolfinch server logs github -f`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 0 {
				return &exitError{exitUsage, errors.New("--lines must be 0 or more")}
			}
			processes, err := s.runningWith(cmd, args[0])
			if err != nil {
				return err
			}
			from := processes[0]
			if more := len(processes) - 1; more > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "from process %d; %d more run with this configuration\n", from.PID, more)
			}
			return from.printLines(cmd, args[0], n, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	cmd.Flags().IntVarP(&n, "lines", "n", 200, "how many of the last lines")
	withJSON(cmd, "print each line as a JSON object")
	return cmd
}

// printLines prints the last n lines about a server and, with follow, all that come until the command or the process
// ends.
func (r running) printLines(cmd *cobra.Command, server string, n int, follow bool) error {
	last := int64(0)
	for first := true; ; first = false {
		var lines []upstream.Line
		err := r.ask(cmd.Context(), http.MethodGet, "/servers/"+url.PathEscape(server)+"/lines?after="+strconv.FormatInt(last, 10), &lines)
		switch {
		case cmd.Context().Err() != nil:
			return cmd.Context().Err()
		case err != nil && !first:
			return &exitError{exitNotRunning, errors.New("toolfinch has ended")}
		case err != nil:
			return err
		case first && len(lines) == 0:
			fmt.Fprintf(cmd.ErrOrStderr(), "nothing is known of %s yet\n", server)
		}
		if len(lines) > 0 {
			last = lines[len(lines)-1].Number
		}
		if first {
			lines = lines[max(0, len(lines)-n):]
		}
		for _, line := range lines {
			if err := printLine(cmd, line); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		if !leeway.Wait(cmd.Context(), followEvery) {
			return cmd.Context().Err()
		}
	}
}

func printLine(cmd *cobra.Command, line upstream.Line) error {
	if asJSON(cmd) {
		return rawjson.Write(cmd.OutOrStdout(), line, "")
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %-7s  %s\n", line.At.Local().Format("2006-01-02 15:04:05"), line.Kind, cmp.Or(strings.TrimSpace(line.Text), "-"))
	return err
}
