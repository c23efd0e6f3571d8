package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/nearest"
	"toolfinch/store"
	"toolfinch/trust"
	"toolfinch/trust/inbound"
	"toolfinch/view"
)

func newKey(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make, list and revoke API keys of clients that connect over HTTP",
		Long: `Key manages the API keys that clients send as "Authorization: Bearer KEY" where the
configuration has auth. Keys belong to the configuration, in whose store their SHA-256
is kept; the key itself is shown once. A running toolfinch notices within a second.`,
		Example: `  toolfinch key create ci --view github --scope mcp:read --expires 30d
  toolfinch key list
  toolfinch key revoke ci`,
	}
	cmd.AddCommand(newKeyCreate(s), newKeyList(s), newKeyRevoke(s))
	return cmd
}

func newKeyCreate(s *settings) *cobra.Command {
	var only, expires string
	var scopes, groups []string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key, and show it once",
		Long: `Create makes an API key and prints it. Who sends it is the principal key|NAME, which
what is provisioned and kept belongs to; a key that is made under the name of a revoked
one goes on with that.`,
		Example: `  toolfinch key create laptop
  toolfinch key create ci --view github --scope mcp:read --group bots --expires 30d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			usage := func(err error) error { return &exitError{exitUsage, err} }
			if err := inbound.CheckKeyName(args[0]); err != nil {
				return usage(err)
			}
			lives, err := lifetime(expires)
			if err != nil {
				return usage(err)
			}
			return s.withStore(cmd, true, func(ctx context.Context, config *configs.Config, db *store.Store) error {
				if err := checkKeyView(config, only); err != nil {
					return usage(err)
				}
				if err := checkKeyScopes(config, scopes); err != nil {
					return usage(err)
				}
				text, hash := inbound.NewKey()
				key := trust.Key{Name: args[0], Hash: hash, View: only, Scopes: sortedOnce(scopes), Groups: sortedOnce(groups), Created: time.Now()}
				if lives > 0 {
					key.Expires = key.Created.Add(lives)
				}
				err := db.AddKey(ctx, key)
				if errors.Is(err, store.ErrKeyExists) {
					return fmt.Errorf("there is a key %q: choose another name, or revoke it first: toolfinch key revoke %s", args[0], args[0])
				}
				if err != nil {
					return err
				}
				if err := s.record(cmd, config, trust.Event{Kind: trust.EventKey, Tool: key.Name, View: key.View, Details: map[string]string{"change": "made"}}); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), text)
				until := "for good"
				if lives > 0 {
					until = "until " + key.Expires.Local().Format("2006-01-02 15:04")
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "the key %s, %s: it is not shown again. Clients send: Authorization: Bearer KEY\n", key.Name, until)
				if config.Auth.Mode != inbound.Proof || !config.Auth.Keys {
					fmt.Fprintln(cmd.ErrOrStderr(), "the configuration does not ask for keys yet: auth: keys")
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&only, "view", "", "the only `VIEW` of tool_views that it opens")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "a `SCOPE` of auth.scopes; may be repeated")
	cmd.Flags().StringSliceVar(&groups, "group", nil, "a `GROUP` for policies; may be repeated")
	cmd.Flags().StringVar(&expires, "expires", "", "how long it is good, like 30d or 12h (default: for good)")
	return cmd
}

// lifetime reads a number of days or what time.ParseDuration reads; 0 for "".
func lifetime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	lives, err := time.ParseDuration(text)
	if days, is := strings.CutSuffix(text, "d"); is {
		var n int
		n, err = strconv.Atoi(days)
		lives = time.Duration(n) * 24 * time.Hour
	}
	const most = 100 * 365 * 24 * time.Hour
	if err != nil || lives <= 0 || lives > most {
		return 0, fmt.Errorf("--expires must be a time like 30d or 12h, not %q", text)
	}
	return lives, nil
}

// checkKeyView refuses a view that there is not: the key would open nothing.
func checkKeyView(config *configs.Config, name string) error {
	var names []string
	for _, v := range config.Views {
		names = append(names, v.Name)
	}
	if name == "" || slices.Contains(names, name) || name == view.Default && len(names) == 0 {
		return nil
	}
	if near := nearest.Names(name, names, 1, nearest.Loose); len(near) > 0 {
		return fmt.Errorf("--view: there is no view %q; did you mean %s?", name, near[0])
	}
	return fmt.Errorf("--view: there is no view %q in tool_views", name)
}

// checkKeyScopes refuses scopes that mean nothing, and a key that may nothing.
func checkKeyScopes(config *configs.Config, scopes []string) error {
	var known []string
	for _, scope := range config.Auth.Scopes {
		known = append(known, scope.Name)
	}
	if len(known) > 0 && len(scopes) == 0 {
		return fmt.Errorf("--scope is needed, as the configuration has auth.scopes: %s", strings.Join(known, ", "))
	}
	for _, scope := range scopes {
		if len(known) > 0 && !slices.Contains(known, scope) {
			return fmt.Errorf("--scope: auth.scopes has no %q; there are %s", scope, strings.Join(known, ", "))
		}
	}
	return nil
}

func sortedOnce(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// keyRow is an API key without the key.
type keyRow struct {
	Name    string    `json:"name"`
	View    string    `json:"view,omitempty"`
	Scopes  []string  `json:"scopes,omitempty"`
	Groups  []string  `json:"groups,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"last_used,omitzero"`
	Expired bool      `json:"expired,omitempty"`
}

func newKeyList(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the API keys, and when each was used last",
		Example: `  toolfinch key list
  toolfinch key list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd, false, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
				keys, err := db.Keys(ctx)
				if err != nil {
					return err
				}
				day := func(at time.Time, never string) string {
					if at.IsZero() {
						return never
					}
					return at.Local().Format("2006-01-02 15:04")
				}
				rows := []keyRow{}
				t := &table{head: []string{"NAME", "VIEW", "SCOPES", "GROUPS", "LAST USED", "EXPIRES"}}
				for _, key := range keys {
					row := keyRow{key.Name, key.View, key.Scopes, key.Groups, key.Created, key.Expires, key.Used, !key.Expires.IsZero() && time.Now().After(key.Expires)}
					rows = append(rows, row)
					ends := day(key.Expires, "never")
					if row.Expired {
						ends = "expired"
					}
					t.add(key.Name, orDash(key.View), orDash(strings.Join(key.Scopes, " ")), orDash(strings.Join(key.Groups, " ")), day(key.Used, "never"), ends)
				}
				return show(cmd, asJSON, map[string]any{"keys": rows}, t, "there are no API keys: toolfinch key create NAME makes one")
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newKeyRevoke(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Revoke an API key: it opens nothing any more",
		Example: `  toolfinch key revoke ci`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withStore(cmd, true, func(ctx context.Context, config *configs.Config, db *store.Store) error {
				was, err := db.RevokeKey(ctx, args[0])
				if err != nil {
					return err
				}
				if !was {
					return fmt.Errorf("there is no key %q: toolfinch key list shows those there are", args[0])
				}
				fmt.Fprintf(cmd.OutOrStdout(), "revoked %s\n", args[0])
				return s.record(cmd, config, trust.Event{Kind: trust.EventKey, Tool: args[0], Details: map[string]string{"change": "revoked"}})
			})
		},
	}
}
