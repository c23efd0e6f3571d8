package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/proxy"
	"toolfinch/upstream"
	"toolfinch/upstream/login"
)

func newLogin(s *settings) *cobra.Command {
	var device, noBrowser, status bool
	cmd := &cobra.Command{
		Use:   "login NAME",
		Short: "Log in to a server that requires it (OAuth)",
		Long: `Login opens a browser in which you log in to a server, and waits for the browser's
redirect to this machine. The token is stored sealed in the store of the configuration
and renewed automatically. Every toolfinch with this configuration uses it at once.
On a machine without a browser (SSH), open the printed URL elsewhere, and paste the
address at which that browser ends; or use --device, and enter a code in a browser elsewhere.
--status shows the logins. --logout deletes the token of a server, and revokes it at the
authorization server if that supports revocation.

The server names its authorization server. If that server does not register unknown
clients, set oauth: {client_id: ...}.`,
		Example: `  toolfinch server login linear
  toolfinch server login linear --no-browser
  toolfinch server login linear --logout
  toolfinch server login --status`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case status:
				return s.loginStatus(cmd, args)
			case len(args) == 0:
				return &exitError{exitUsage, errors.New("which server? toolfinch server login NAME, or toolfinch server login --status")}
			}
			return s.withLogins(cmd, func(l *proxy.Logins, config *configs.Config) error {
				one, err := serverToLogin(l, config, args[0], func(s *login.Settings) error {
					if device {
						s.Grant = login.GrantDevice
					}
					return s.EndHere()
				})
				if err != nil {
					return err
				}
				return logIn(cmd, l, one, args[0], noBrowser)
			})
		},
	}
	cmd.Flags().BoolVar(&device, "device", false, "log in with a code, in a browser elsewhere")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the URL, and take a pasted address from standard input")
	cmd.Flags().BoolVar(&status, "status", false, "show the logins that there are")
	withJSON(cmd, "print one JSON object, with --status")
	alsoAs(cmd, "logout", "delete and revoke the login", newLogout(s))
	return cmd
}

func newLogout(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "logout SERVER",
		Short: "Delete and revoke the login to a server",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withLogins(cmd, func(l *proxy.Logins, config *configs.Config) error {
				one, err := serverToLogin(l, config, args[0], nil)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
				defer cancel()
				was, revoked, err := one.Logout(ctx, "")
				out := cmd.OutOrStdout()
				switch {
				case err != nil && was:
					fmt.Fprintf(out, "logged out of %s\n", args[0])
					return err
				case err != nil:
					return err
				case !was:
					fmt.Fprintf(out, "there was no login to %s\n", args[0])
				case revoked:
					fmt.Fprintf(out, "logged out of %s: the token is deleted and revoked\n", args[0])
				default:
					fmt.Fprintf(out, "logged out of %s: the token is deleted; its authorization server does not revoke it\n", args[0])
				}
				return nil
			})
		},
	}
}

func (s *settings) withLogins(cmd *cobra.Command, do func(*proxy.Logins, *configs.Config) error) (err error) {
	config, log, err := s.load(cmd, nil)
	if err != nil {
		return err
	}
	audits, err := audited(config, log)
	if err != nil {
		return err
	}
	l, err := proxy.OpenLogins(cmd.Context(), config, append(audits, proxy.WithLogger(log), proxy.WithVersion(built().Version), proxy.WithVaultKey(s.vaultKey))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return do(l, config)
}

// serverToLogin returns the named server. change, unless nil, edits its login settings.
func serverToLogin(l *proxy.Logins, config *configs.Config, name string, change func(*login.Settings) error) (*login.Server, error) {
	if err := among(serverNames(config), config.Disabled, name); err != nil {
		return nil, err
	}
	settings := *config.Server(name)
	if settings.Fault != "" {
		return nil, fmt.Errorf("server %q is left out: %s", name, settings.Fault)
	}
	if change != nil {
		if err := change(&settings.Login); err != nil {
			return nil, fmt.Errorf("server %s: %w", name, err)
		}
	}
	one := upstream.LoginTo(l.Logins, settings)
	switch {
	case one != nil:
		return one, nil
	case settings.URL == "":
		return nil, fmt.Errorf("server %q is a program on this machine: it takes secrets from env", name)
	case settings.Login.Off:
		return nil, fmt.Errorf("server %q has oauth: off", name)
	}
	return nil, fmt.Errorf("server %q has a header Authorization, which is used instead: remove it to log in", name)
}

func logIn(cmd *cobra.Command, l *proxy.Logins, one *login.Server, name string, noBrowser bool) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if _, err := one.Probe(ctx, ""); err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	if !one.Interactive() {
		status, err := one.Obtain(ctx, "")
		if err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
		return loggedIn(cmd, l, status)
	}
	pending, err := one.Begin(ctx, "")
	if err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	at, code := pending.URL(), pending.UserCode()
	if !noBrowser && code == "" {
		if err := openBrowser(at); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "no browser was opened (%v): open the URL yourself\n", err)
			noBrowser = true
		}
	}
	if noBrowser {
		at = pending.DirectURL()
	}
	fmt.Fprintf(out, "Log in to %s at\n\n  %s\n\n", name, at)
	switch {
	case code != "":
		fmt.Fprintf(out, "with the code %s\n\n", code)
	case noBrowser:
		fmt.Fprint(out, "If the browser is on another machine, it ends at a page that it cannot open: paste the address of that page here.\n\n")
		takePasted(cmd, pending)
	}
	select {
	case <-pending.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := pending.Err(); err != nil {
		return fmt.Errorf("server %s: %s", name, login.WithWords(err))
	}
	return loggedIn(cmd, l, pending.Status())
}

// takePasted takes the address at which a browser elsewhere has ended, from standard input.
func takePasted(cmd *cobra.Command, pending *login.Pending) {
	// A read from a terminal cannot be stopped: it ends with the program.
	go func() {
		for lines := bufio.NewScanner(cmd.InOrStdin()); lines.Scan(); {
			if strings.TrimSpace(lines.Text()) == "" {
				continue
			}
			if err := pending.Paste(lines.Text()); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
			}
		}
	}()
}

func loggedIn(cmd *cobra.Command, l *proxy.Logins, status login.Status) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "logged in to %s at %s\n", status.Server, status.Issuer)
	t := &table{indent: "  ", whole: true}
	t.add("scopes", cmp.Or(strings.Join(status.Scopes, " "), "-"))
	t.add("until", untilOf(status))
	t.add("kept in", l.Kept())
	return t.print(out)
}

func untilOf(s login.Status) string {
	until := "not known"
	if !s.Expires.IsZero() {
		until = minute(s.Expires)
	}
	if s.Refreshes {
		return until + ", renewed before that"
	}
	return until
}

// loginRow is a login, or a server without one.
type loginRow struct {
	Server    string     `json:"server"`
	Principal string     `json:"principal,omitempty"` // "" for the owner of this configuration
	Issuer    string     `json:"issuer,omitempty"`
	Grant     string     `json:"grant,omitempty"`
	Scopes    []string   `json:"scopes,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
	Renewed   bool       `json:"renewed"`
}

func (s *settings) loginStatus(cmd *cobra.Command, args []string) error {
	return s.withLogins(cmd, func(l *proxy.Logins, config *configs.Config) error {
		rows, t := []loginRow{}, &table{head: []string{"SERVER", "USER", "AT", "SCOPES", "UNTIL"}, whole: true}
		for _, server := range config.Servers {
			if len(args) > 0 && args[0] != server.Name {
				continue
			}
			one := upstream.LoginTo(l.Logins, server)
			if one == nil {
				continue
			}
			all, err := one.Statuses(cmd.Context())
			if err != nil {
				return err
			}
			for _, status := range all {
				row := loginRow{Server: status.Server, Principal: status.Principal, Issuer: status.Issuer, Grant: string(status.Grant), Scopes: status.Scopes, Renewed: status.Refreshes}
				if !status.Expires.IsZero() {
					row.Expires = &status.Expires
				}
				rows = append(rows, row)
				t.add(row.Server, cmp.Or(row.Principal, "-"), row.Issuer, cmp.Or(strings.Join(row.Scopes, " "), "-"), untilOf(status))
			}
		}
		return show(cmd, map[string]any{"logins": rows}, t, "nobody is logged in to a server")
	})
}

// openBrowser opens a URL in a browser. It uses no shell, because the URL may come from a server.
func openBrowser(url string) error {
	name, args := "", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	default:
		name = "xdg-open"
		if os.Getenv("BROWSER") == "" && os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return errors.New("there is no display")
		}
	}
	if own := os.Getenv("BROWSER"); own != "" && !strings.ContainsAny(own, ":% ") {
		name, args = own, []string{url}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	opening := exec.Command(path, args...)
	if err := opening.Start(); err != nil {
		return err
	}
	return opening.Process.Release() // not waited for: the process may be the browser itself
}
