package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/store"
)

func newClean() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Delete stores of configurations that no longer exist",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := uselessStores()
			if err != nil {
				return err
			}
			var failed error
			if yes {
				failed = removeStores(cmd.Context(), rows)
			}
			t := &table{head: []string{"STATE", "SIZE", "WRITTEN", "CONFIGURATION", "STORE"}, whole: true}
			left := 0
			for _, row := range rows {
				configuration := cmp.Or(row.Configuration, "-")
				if row.State == storeGone || row.State == storeCache {
					left++
				}
				t.add(row.State, humanize.Bytes(uint64(row.Bytes)), row.Written.Format(time.DateOnly), configuration, row.Folder)
			}
			if err := show(cmd, map[string]any{"stores": rows}, t, "nothing to clean: every store belongs to a configuration that is there"); err != nil {
				return err
			}
			if left > 0 && !yes && !asJSON(cmd) {
				fmt.Fprintf(cmd.ErrOrStderr(), "toolfinch store --clean --yes removes %s\n", plural(left, "store"))
			}
			return failed
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "remove them")
	withJSON(cmd, "print one JSON object")
	return cmd
}

// The states of stores.
const (
	storeGone    = "gone"    // the configuration does not exist
	storeUnknown = "unknown" // the configuration is unknown
	storeCache   = "cache"   // eval's cache
	storeRemoved = "removed"
)

type storeRow struct {
	State         string    `json:"state"`
	Configuration string    `json:"configuration,omitempty"` // "" if unknown
	Folder        string    `json:"folder"`
	Bytes         int64     `json:"bytes"`
	Written       time.Time `json:"written"`
}

// uselessStores returns eval's cache, and the user's stores whose configuration does not exist or is unknown.
func uselessStores() ([]storeRow, error) {
	base, err := configs.UserDataDir()
	if err != nil {
		return nil, err
	}
	folders, err := store.Folders(base)
	if err != nil {
		return nil, err
	}
	rows := []storeRow{}
	caches, err := store.Folders(filepath.Dir(evalCache()))
	if err != nil {
		return nil, err
	}
	for _, f := range caches {
		if f.Path == evalCache() {
			rows = append(rows, storeRow{State: storeCache, Folder: f.Path, Bytes: f.Bytes, Written: f.Written})
		}
	}
	for _, f := range folders {
		row := storeRow{State: storeGone, Configuration: f.Configuration, Folder: f.Path, Bytes: f.Bytes, Written: f.Written}
		if f.Configuration == "" {
			row.State = storeUnknown
			rows = append(rows, row)
			continue
		}
		// Another folder is a data_dir, which several configurations may share.
		if own, err := configs.DefaultDataDir(f.Configuration); err != nil || own != f.Path {
			continue
		}
		if _, err := os.Stat(f.Configuration); errors.Is(err, fs.ErrNotExist) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// removeStores removes the stores of missing configurations, and the cache.
func removeStores(ctx context.Context, rows []storeRow) error {
	var failed []error
	for i, row := range rows {
		if row.State != storeGone && row.State != storeCache {
			continue
		}
		askLive(ctx, row.Folder, "") // removes the sockets of crashed processes
		if err := store.Remove(ctx, row.Folder); err != nil {
			failed = append(failed, fmt.Errorf("%s was not removed: %w", row.Folder, err))
			continue
		}
		rows[i].State = storeRemoved
		for _, left := range []string{socketDir(row.Folder), logFile(row.Folder), logFile(row.Folder) + ".1"} {
			_ = os.RemoveAll(left)
		}
		_ = os.Remove(row.Folder) // fails if the user keeps other files in it
	}
	return errors.Join(failed...)
}
