package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"toolfinch/store"
)

func newStore(s *settings) *cobra.Command {
	cmd := named("store", newStoreCheck(s))
	alsoAs(cmd, "copy", "copy everything from one store to another: toolfinch store --copy FROM TO", newStoreCopy())
	alsoAs(cmd, "clean", "list the stores of configurations that no longer exist; with --yes, delete them", newClean())
	cmd.AddCommand(unlisted(newStoreCheck(s), newStoreCopy())...)
	return cmd
}

func newStoreCheck(s *settings) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "check [STORE]",
		Short: "Describe the store, copy it, or delete stores that are no longer used",
		Long: `The store keeps toolfinch's data: SQLite in a folder, or a PostgreSQL database. Name a
store by its folder, or by its URL, postgres://USER@HOST/DATABASE. Give the password in
PGPASSWORD or ~/.pgpass, not in the URL.

Store describes the store of the configuration, or STORE. For a PostgreSQL database it
also tests what replicas need: sessions, advisory locks, notifications. It changes
nothing.

--copy copies a whole store or, on an error, nothing. First stop every toolfinch that
uses one of the stores: data that it writes meanwhile is not copied. Secrets and logins
are copied sealed: the copy needs the same key.

--clean lists the stores of configurations that no longer exist, and eval's cache of
vectors. With --yes it deletes them, with approvals, vectors, savings and everything
learned. A store from an older version, whose configuration is unknown, is listed but
never deleted.

Exit codes: 0 the store can be used, 1 it cannot.`,
		Example: `  toolfinch store
  toolfinch store postgres://toolfinch@db.example/toolfinch
  toolfinch store --copy ~/.local/share/toolfinch/1a2b3c4d postgres://toolfinch@db.example/toolfinch
  toolfinch store --clean --yes`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := ""
			if len(args) > 0 {
				at = args[0]
				if known, err := store.Check(cmd.Context(), at); err != nil {
					return err
				} else if !known {
					return fmt.Errorf("there is no store in %s", storeName(at))
				}
			} else if places, err := s.places(); err != nil {
				return err
			} else {
				at = places.Store
			}
			found, err := store.Examine(cmd.Context(), at)
			if err != nil {
				return err
			}
			t := &table{head: []string{"IN IT", "ROWS"}}
			for _, one := range found.Rows {
				t.add(one.Table, strconv.Itoa(one.Rows))
			}
			if !asJSON(cmd) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s, %s\n", storeName(at), found.Database)
			}
			if err := show(cmd, found, t, "nothing is in it"); err != nil {
				return err
			}
			var wrong []error
			for _, text := range found.Wrong {
				wrong = append(wrong, errors.New(text))
			}
			return errors.Join(wrong...)
		},
	}, "print one JSON object")
}

func newStoreCopy() *cobra.Command {
	var replace bool
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy everything from one store to another",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			from, to := args[0], args[1]
			if storePlace(from, locating...) == storePlace(to, locating...) {
				return &exitError{exitUsage, errors.New("both are " + storeName(from))}
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			if known, err := store.Check(cmd.Context(), from); err != nil {
				return err
			} else if !known {
				return fmt.Errorf("there is no store in %s", storeName(from))
			}
			source, err := store.OpenExisting(cmd.Context(), from, log)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, source.Close()) }()
			target, err := store.Open(cmd.Context(), to, log)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, target.Close()) }()
			if !target.Durable() {
				return fmt.Errorf("the store in %s cannot be opened", storeName(to))
			}
			rows, err := store.Copy(cmd.Context(), source, target, replace)
			if errors.Is(err, store.ErrNotEmpty) {
				return fmt.Errorf("%w; --replace overwrites it", err)
			}
			if err != nil {
				return err
			}
			t := &table{head: []string{"COPIED", "ROWS"}}
			for _, one := range rows {
				t.add(one.Table, strconv.Itoa(one.Rows))
			}
			return show(cmd, map[string]any{"rows": rows}, t, "")
		},
	}
	cmd.Flags().BoolVar(&replace, "replace", false, "first delete the content of TO")
	withJSON(cmd, "print one JSON object")
	return cmd
}

// locating are the query parameters of a URL that identify a store.
var locating = []string{"host", "port", "dbname", "service", "search_path", "options"}

func storeName(at string) string { return storePlace(at, "search_path") }

// storePlace returns the place of a store. Of a URL's query it keeps only the given parameters.
func storePlace(at string, query ...string) string {
	if store.InPostgres(at) {
		u, err := url.Parse(at)
		if err != nil {
			return "PostgreSQL"
		}
		asked := url.Values{}
		for _, key := range query {
			if values, is := u.Query()[key]; is {
				asked[key] = values
			}
		}
		named := url.URL{Scheme: "postgres", Host: cmp.Or(u.Host, "localhost"), Path: u.Path, RawQuery: asked.Encode()}
		return named.String()
	}
	if absolute, err := filepath.Abs(at); err == nil {
		return absolute
	}
	return at
}
