package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/internal/leeway"
	"toolfinch/internal/printable"
)

// healthWithin bounds the wait for an answer.
const healthWithin = 5 * time.Second

func newHealth(s *settings) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "health [URL]",
		Short: "Check whether a toolfinch serves over HTTP",
		Long: `Health asks the toolfinch at URL (default: the configuration's listen address) and exits
with 1 unless it answers. It is a health check for container engines and supervisors.
With --ready it also fails until a first tool can be found.`,
		Example: `  toolfinch health
  toolfinch health http://127.0.0.1:8080
  toolfinch health --ready`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var base string
			if len(args) > 0 {
				base = args[0]
			} else {
				config, err := s.read(cmd, nil)
				if err != nil {
					return err
				}
				base = "http://" + reachableAt(config.Listen)
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			answer, err := askHealth(cmd.Context(), strings.TrimSuffix(base, "/")+path)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), answer)
			return err
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "fail until a first tool can be found")
	return cmd
}

// reachableAt returns the address at which this machine reaches a listener at listen.
func reachableAt(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host != "" && !(ip != nil && ip.IsUnspecified()) {
		return listen
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// askHealth returns the answer of url. Any status but 200 is an error.
func askHealth(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(healthWithin))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", &exitError{exitUsage, err}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("%w; is toolfinch serve --port running?", err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10)) // ignored, because the status decides
	text := strings.TrimSpace(printable.Line(string(body)))
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers with HTTP status %s: %s", url, response.Status, cmp.Or(text, "nothing more"))
	}
	return text, nil
}
