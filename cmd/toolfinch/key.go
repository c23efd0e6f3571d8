package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/trust/inbound"
	"toolfinch/upstream"
)

func newKey(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make, list and revoke API keys of clients that connect over HTTP",
		Long: `Key manages the API keys that clients send as "Authorization: Bearer KEY" if the
configuration has auth. Keys belong to the configuration. Its store keeps only their
SHA-256; the key itself is shown once. A running toolfinch applies changes within a second.`,
		Example: `  toolfinch key create ci --view github --scope mcp:read --expires 30d
  toolfinch key list
  toolfinch key revoke ci`,
	}
	cmd.AddCommand(newKeyCreate(s), newKeyList(s), newKeyRevoke(s))
	return cmd
}

func newKeyCreate(s *settings) *cobra.Command {
	var wanted inbound.KeyRequest
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key, and show it once",
		Long: `Create makes an API key and prints it. Policies call it User::"key|NAME", and each of
its groups Group::"key|GROUP". Its provisioned tools, stored results, sessions and logins
belong to this key alone: a new key with the name of a revoked key gets none of them.`,
		Example: `  toolfinch key create laptop
  toolfinch key create ci --view github --scope mcp:read --group bots --expires 30d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted.Name = args[0]
			return s.withStore(cmd, true, func(ctx context.Context, config *configs.Config, db *store.Store) error {
				text, key, err := wanted.Make(config.Auth, config.ViewNames(), time.Now())
				if err != nil {
					return flagError(err)
				}
				err = db.Keys().Add(ctx, key)
				if errors.Is(err, store.ErrKeyExists) {
					return fmt.Errorf("there is a key %q: choose another name, or revoke it first: toolfinch key revoke %s", args[0], args[0])
				}
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), text) // printed first: the key is stored nowhere else
				if err := record(cmd.Context(), config, key.Event("made")); err != nil {
					return err
				}
				until := "for good"
				if !key.Expires.IsZero() {
					until = "until " + minute(key.Expires)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "the key %s, %s: it is not shown again. Clients send: Authorization: Bearer KEY\n", key.Name, until)
				if config.Auth.Mode != inbound.Proof || !config.Auth.Keys {
					fmt.Fprintln(cmd.ErrOrStderr(), "the configuration does not ask for keys yet: auth: keys")
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&wanted.View, "view", "", "the only `VIEW` of tool_views that it opens")
	cmd.Flags().StringSliceVar(&wanted.Scopes, "scope", nil, "a `SCOPE` of auth.scopes; may be repeated")
	cmd.Flags().StringSliceVar(&wanted.Groups, "group", nil, "a `GROUP`, which is key|GROUP in policies; may be repeated")
	cmd.Flags().StringVar(&wanted.Lasts, "expires", "", "how long it is valid, like 30d or 12h (default: no limit)")
	return cmd
}

// keyRow is an API key without the key.
type keyRow struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"` // ID of the principal
	View    string    `json:"view,omitempty"`
	Scopes  []string  `json:"scopes,omitempty"`
	Groups  []string  `json:"groups,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"last_used,omitzero"`
	Expired bool      `json:"expired,omitempty"`
}

func newKeyList(s *settings) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "list",
		Short: "List the API keys, and when each was used last",
		Example: `  toolfinch key list
  toolfinch key list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd, false, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
				keys, err := db.Keys().All(ctx)
				if err != nil {
					return err
				}
				rows := []keyRow{}
				t := &table{head: []string{"NAME", "VIEW", "SCOPES", "GROUPS", "LAST USED", "EXPIRES"}}
				for _, key := range keys {
					row := keyRow{key.Name, key.ID, key.View, key.Scopes, key.Groups, key.Created, key.Expires, key.Used, key.Expired(time.Now())}
					rows = append(rows, row)
					ends := minute(key.Expires)
					if row.Expired {
						ends = "expired"
					}
					t.add(key.Name, orDash(key.View), orDash(strings.Join(key.Scopes, " ")), orDash(strings.Join(key.Groups, " ")), minute(key.Used), ends)
				}
				return show(cmd, map[string]any{"keys": rows}, t, "there are no API keys: toolfinch key create NAME makes one")
			})
		},
	}, "print one JSON object")
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newKeyRevoke(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke an API key",
		Long: `Revoke ends an API key and what belongs to it: its sessions and running requests in every
toolfinch that serves it, its provisioned tools and stored results, and its logins to servers,
which are revoked at their authorization servers if those support revocation.`,
		Example: `  toolfinch key revoke ci`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withStore(cmd, true, func(ctx context.Context, config *configs.Config, db *store.Store) error {
				key, err := db.Keys().Revoke(ctx, args[0])
				if err != nil {
					return err
				}
				if key == nil {
					return fmt.Errorf("there is no key %q: see toolfinch key list", args[0])
				}
				fmt.Fprintf(cmd.OutOrStdout(), "revoked %s\n", args[0])
				if err := record(cmd.Context(), config, key.Event("revoked")); err != nil {
					return err
				}
				if slices.ContainsFunc(config.Servers, func(server upstream.Settings) bool { return server.Login.PerUser }) {
					return s.endLogins(cmd)
				}
				return nil
			})
		},
	}
}

// endLogins ends the logins of revoked keys. A running toolfinch also ends them, but perhaps none runs.
func (s *settings) endLogins(cmd *cobra.Command) error {
	return s.withLogins(cmd, func(l *proxy.Logins, _ *configs.Config) error {
		ended, err := l.EndGone(cmd.Context())
		if ended > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "deleted %s\n", plural(ended, "login"))
		}
		if err != nil {
			return fmt.Errorf("the key is revoked, but not all of its logins: %w", err)
		}
		return nil
	})
}
