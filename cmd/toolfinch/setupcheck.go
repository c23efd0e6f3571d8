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
	"toolfinch/configs/clients"
	"toolfinch/internal/leeway"
	"toolfinch/proxy"
	"toolfinch/upstream/login"
)

// checkWithin bounds the check of all servers.
const checkWithin = 5 * time.Minute

// checkedServers are the results of the servers that work, and the configuration that they were checked with.
type checkedServers struct {
	config *configs.Config // nil if nothing was checked
	ready  []proxy.Refreshed
}

// checkServers starts each server of the plan, lists it once, and stores its lists. It adds the servers that fail to
// p.left. Nothing of the configuration or of the clients is written.
func (s *settings) checkServers(cmd *cobra.Command, p *setupPlan) (checked checkedServers, err error) {
	if p.config.After == nil {
		return checked, nil
	}
	path := p.config.File.Path
	servers, err := configs.ServersOf(path, p.config.After)
	if err != nil {
		return checked, editError(err)
	}
	// The servers run in the folder of the configuration.
	if p.config.Made, err = clients.MakeFolders(path); err != nil {
		return checked, err
	}
	flags := s.given()
	if checked.config, err = configs.Load(configs.Options{Path: path, Data: p.config.After, Flags: flags, Vault: s.readVault}); err != nil {
		return checked, err
	}
	if s.away != nil {
		return checked, s.away
	}
	if err := leaveOutSelf(checked.config); err != nil {
		return checked, &exitError{exitUsage, err}
	}
	fail := func(name, why string, login bool) {
		i := slices.IndexFunc(servers, func(s clients.Server) bool { return s.Name == name })
		p.left = append(p.left, leftServer{servers[i], why, login})
	}
	var names []string
	for _, name := range p.check {
		switch s := checked.config.Server(name); {
		case s == nil:
			fail(name, "it is left out: toolfinch validate says why", false)
		case s.Fault != "":
			fail(name, s.Fault, false)
		default:
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return checked, nil
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), leeway.Of(checkWithin), errors.New("no answer in "+checkWithin.String()))
	defer cancel()
	return checked, s.withWorkspace(cmd, checked.config, s.quietLog(cmd, checked.config), false, func(d *workspace) error {
		if _, err := d.Learn(ctx); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning: nothing can be stored:", err)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "checking %s\n", strings.Join(names, ", "))
		rows := d.refresh(ctx, names...)
		if cmd.Context().Err() != nil {
			return context.Cause(cmd.Context())
		}
		for _, row := range rows {
			switch {
			case row.Err == nil:
				checked.ready = append(checked.ready, row)
			case errors.As(row.Err, new(*login.Needed)):
				fail(row.Server, fmt.Sprintf("needs a login: toolfinch server login %s, then toolfinch setup again", row.Server), true)
			case errors.Is(row.Err, context.DeadlineExceeded) && ctx.Err() != nil:
				fail(row.Server, context.Cause(ctx).Error(), false)
			default:
				fail(row.Server, oneLine(strings.TrimPrefix(row.Err.Error(), "upstream "+row.Server+": ")), false)
			}
		}
		return nil
	})
}
