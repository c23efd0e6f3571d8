package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/nearest"
	"toolfinch/store"
	"toolfinch/store/vault"
)

func newSecret(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Store secrets for the configuration",
		Long: `A secret is stored sealed in the store of the configuration; the configuration uses
${secret:NAME}. The key is in the keyring of the operating system, in a file if there is
no keyring, or in the variable ` + vault.EnvKey + `: 32 bytes in base64
or as 64 hexadecimal digits.`,
	}
	cmd.AddCommand(newSecretSet(s), newSecretList(s), newSecretRemove(s))
	cmd.AddCommand(unlisted(newSecretReset(s))...)
	return cmd
}

func newSecretSet(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME",
		Short: "Store a secret, replacing one of the same name",
		Long: `Set asks for the value at a terminal, without showing it. Without a terminal it reads
standard input, without the last line break. A running toolfinch uses the value after
the next edit of its configuration, or after SIGHUP.`,
		Example: `  toolfinch secret set GITHUB_TOKEN
  gh auth token | toolfinch secret set GITHUB_TOKEN`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			row, err := secretRow(args[0])
			if err != nil {
				return err
			}
			return s.withVault(cmd, func(ctx context.Context, v *vault.Vault) error {
				if _, _, err := v.KeyPlace(ctx); err != nil {
					return explainKey(err)
				}
				value, err := secretValue(ctx, cmd, args[0])
				if err != nil {
					return err
				}
				if err := v.Put(ctx, row, value); err != nil {
					return explainKey(err)
				}
				if err := s.recordSecret(cmd, args[0], "set"); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "stored secret %q: ${secret:%s} in the configuration stands for it\n", args[0], args[0])
				return err
			})
		},
	}
}

func newSecretList(s *settings) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "list",
		Short: "List the names of the stored secrets, and where their key is",
		Example: `  toolfinch secret list
  toolfinch secret list --json | jq -r '.secrets[].name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			at, err := s.places()
			if err != nil {
				return err
			}
			v, done, err := s.readVault(at)
			if err != nil {
				return err
			}
			defer done()
			type secret struct {
				Name   string    `json:"name"`
				Stored time.Time `json:"stored"`
			}
			t := &table{head: []string{"NAME", "STORED"}}
			secrets := []secret{}
			prefix, _ := configs.SecretRow("")
			rows, err := v.Names(ctx, prefix)
			if err != nil {
				return err
			}
			for _, row := range rows {
				one := secret{strings.TrimPrefix(row.Name, prefix), row.At}
				secrets = append(secrets, one)
				t.add(one.Name, minute(one.Stored))
			}
			place, path, noKey := v.KeyPlace(ctx)
			err = show(cmd, struct {
				Secrets []secret `json:"secrets"`
				Key     string   `json:"key,omitempty"`
				KeyFile string   `json:"key_file,omitempty"`
			}{secrets, place, path}, t, "no secrets are stored")
			if place != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), strings.TrimSpace("the key is in "+place+" "+path))
			}
			return errors.Join(err, explainKey(noKey))
		},
	}, "print one JSON object")
}

func newSecretRemove(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a stored secret",
		Long: `Rm removes a secret. --all deletes everything that is sealed: secrets and logins to
servers. Use it if the key is lost. The next secret or login makes a new key. An existing
key stays.`,
		Example: `  toolfinch secret rm GITHUB_TOKEN
  toolfinch secret rm --all --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			row, err := secretRow(args[0])
			if err != nil {
				return err
			}
			return s.withVault(cmd, func(ctx context.Context, v *vault.Vault) error {
				prefix, _ := configs.SecretRow("")
				rows, err := v.Names(ctx, prefix)
				if err != nil {
					return err
				}
				var names []string
				for _, row := range rows {
					names = append(names, strings.TrimPrefix(row.Name, prefix))
				}
				if !slices.Contains(names, args[0]) {
					err := fmt.Errorf("there is no secret %q", args[0])
					if near := nearest.Names(args[0], names, 1, 0.5); len(near) > 0 {
						err = fmt.Errorf("%w; did you mean %q?", err, near[0])
					}
					return err
				}
				if err := v.Delete(ctx, row); err != nil {
					return err
				}
				if err := s.recordSecret(cmd, args[0], "removed"); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed secret %q\n", args[0])
				return err
			})
		},
	}
	alsoAs(cmd, "all", "delete all stored secrets and logins, if their key is lost", newSecretReset(s))
	return cmd
}

func newSecretReset(s *settings) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Delete all stored secrets and logins, if their key is lost",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withVault(cmd, func(ctx context.Context, v *vault.Vault) error {
				rows, err := v.Names(ctx, "")
				if err != nil {
					return err
				}
				if !yes {
					return &exitError{exitUsage, fmt.Errorf("%d secrets and logins would be forgotten: say --yes to do so", len(rows))}
				}
				if err := v.Reset(ctx); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "forgot %d\n", len(rows))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "forget them")
	return cmd
}

// recordSecret writes the change of a secret to the audit log. If the configuration cannot be read, perhaps because the
// secret is missing, nothing is written.
func (s *settings) recordSecret(cmd *cobra.Command, name, change string) error {
	config, err := s.read(cmd, nil)
	if err != nil {
		return nil
	}
	return record(cmd.Context(), config, identity.Event{Kind: identity.EventSecret, Tool: name, Details: map[string]string{"change": change}})
}

func secretRow(name string) (string, error) {
	row, err := configs.SecretRow(name)
	if err == nil && name == "" {
		err = errors.New("the name of the secret is empty")
	}
	if err != nil {
		return "", &exitError{exitUsage, err}
	}
	return row, nil
}

// maxSecret bounds a secret's value, in bytes.
const maxSecret = 256 << 10

// secretValue reads a secret's value: from a terminal without echo, or else from standard input, without its last line
// end.
func secretValue(ctx context.Context, cmd *cobra.Command, name string) ([]byte, error) {
	var value []byte
	var err error
	in, isFile := cmd.InOrStdin().(*os.File)
	if isFile && term.IsTerminal(int(in.Fd())) {
		fmt.Fprintf(cmd.ErrOrStderr(), "value of %s (it is not shown): ", name)
		value, err = readHidden(ctx, int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
	} else if value, err = readInput(ctx, cmd, maxSecret+1); err == nil {
		value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	}
	switch {
	case err != nil:
		return nil, err
	case len(value) == 0:
		err = errors.New("the value is empty: nothing was stored")
	case len(value) > maxSecret:
		err = fmt.Errorf("the value has more than %d kB: nothing was stored", maxSecret>>10)
	case bytes.IndexByte(value, 0) >= 0:
		err = errors.New("the value has a NUL character, which no configuration can have: nothing was stored")
	}
	return value, err
}

// readHidden reads a line from a terminal without echo.
func readHidden(ctx context.Context, terminal int) ([]byte, error) {
	before, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	// The read cannot be stopped, as in readLine. So an interrupt must turn the terminal's echo on again.
	go func() {
		text, err := term.ReadPassword(terminal)
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return l.text, l.err
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), term.Restore(terminal, before))
	}
}

// places returns the paths of the store and the key file, even for a broken configuration: it may lack the secret that
// will be stored.
func (s *settings) places() (configs.Places, error) {
	return configs.FindPlaces(configs.Options{Path: s.config, Flags: s.given()})
}

// vaultReading is the vault for reading configurations. It stays open between reads, so that the key is read only once:
// the keyring may be unavailable at a later reload.
type vaultReading struct {
	at    configs.Places
	vault *vault.Vault
	rows  *readRows
}

// readRows are the sealed rows of the store that is open now.
type readRows struct{ *store.Sealed }

// readVault opens the vault of a store for reading, until done is called. It is not for concurrent use.
func (s *settings) readVault(at configs.Places) (v *vault.Vault, done func() error, err error) {
	s.away = nil
	db, err := store.OpenSealed(context.Background(), at.Store)
	if err != nil {
		if store.Transient(err) {
			s.away = err
		}
		return nil, nil, err
	}
	if r := &s.reading; r.vault == nil || r.at != at {
		rows := &readRows{}
		v, err := vault.Open(rows, vault.Options{Key: s.vaultKey, KeyDir: at.KeyDir, Locks: store.LocksIn(at.DataDir), ReadOnly: true})
		if err != nil {
			return nil, nil, errors.Join(err, db.Close())
		}
		*r = vaultReading{at, v, rows}
	}
	s.reading.rows.Sealed = db.Sealed()
	return s.reading.vault, db.Close, nil
}

// withVault opens the vault of the configuration's store for do, for writing.
func (s *settings) withVault(cmd *cobra.Command, do func(context.Context, *vault.Vault) error) (err error) {
	at, err := s.places()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := store.Open(cmd.Context(), at.Store, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if !db.Durable() {
		return fmt.Errorf("the store in %s cannot be opened", at.StoreName())
	}
	v, err := vault.Open(db.Sealed(), vault.Options{Key: s.vaultKey, KeyDir: at.KeyDir, Locks: db.Sealed().Locks(), Log: log})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return do(cmd.Context(), v)
}

// explainKey adds details for the owner to the error of a missing key, and says what to do if the key is lost.
func explainKey(err error) error {
	noKey, ok := errors.AsType[*vault.KeyError](err)
	if !ok {
		return err
	}
	text := "the stored secrets are sealed with a key that cannot be had: " + noKey.Why
	if noKey.Path != "" {
		text += "\n  the key file: " + noKey.Path
	}
	if noKey.Cause != nil {
		text += "\n  the cause: " + noKey.Cause.Error()
	}
	if noKey.ID != "" {
		text += "\n  the ID of the key: " + noKey.ID
	}
	return errors.New(text + "\n  nothing was changed; if the key is lost for good: toolfinch secret rm --all")
}
