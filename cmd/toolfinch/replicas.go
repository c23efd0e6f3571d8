package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/proxy/replicas"
	"toolfinch/store"
)

func newReplicas(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replicas",
		Short: "Show which toolfinches share the store, and which servers each leads",
		Long: `Replicas shows the toolfinches that serve over the store of the configuration, where that
is in PostgreSQL: the version of each, how long it has been there, and which
servers it leads, which means that it lists them for all. Below it says what differs between
them: versions, servers, and the rest of the configuration.`,
		Example: `  toolfinch replicas
  toolfinch replicas --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd, false, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
				all, err := replicasOf(ctx, db)
				if err != nil {
					return err
				}
				if db.Replicas() == nil && !asJSON {
					fmt.Fprintln(cmd.ErrOrStderr(), "the store is not in PostgreSQL: no toolfinch shares it with others (docs/scale.md)")
					return nil
				}
				t := &table{head: []string{"REPLICA", "ID", "VERSION", "UP", "LEADS"}}
				rows := []replicaRow{}
				for _, r := range all {
					rows = append(rows, replicaRow{r.ID, r.Name, r.Version, r.Started.UTC(), r.LeadsServers(), r.Servers, r.Policy})
					t.add(r.Name, r.ID, r.Version, r.Up.Round(time.Second).String(), orDash(strings.Join(r.LeadsServers(), ", ")))
				}
				differ := replicas.Differences(all)
				if err := show(cmd, asJSON, map[string]any{"replicas": rows, "differ": differ}, t, "no toolfinch serves over this store"); err != nil || asJSON {
					return err
				}
				for _, line := range differ {
					fmt.Fprintln(cmd.ErrOrStderr(), line)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// replicasOf are the replicas that are there; none where the store is one process's.
func replicasOf(ctx context.Context, db *store.Store) ([]store.Replica, error) {
	if all := db.Replicas(); all != nil {
		return all.All(ctx)
	}
	return nil, nil
}

// replicaRow is a replica as JSON.
type replicaRow struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Leads   []string  `json:"leads"`
	Servers string    `json:"servers_hash"`
	Config  string    `json:"configuration_hash"`
}

// takeReplicas takes over who leads a server.
func (r *serverRow) takeReplicas(all []store.Replica) {
	for _, one := range all {
		if slices.Contains(one.Leads, r.Name) {
			r.Leader = one.Name
		}
	}
}
