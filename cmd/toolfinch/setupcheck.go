package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/leeway"
	"toolfinch/proxy"
	"toolfinch/upstream"
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
		i := slices.IndexFunc(checked.config.Servers, func(s upstream.Settings) bool { return s.Name == name })
		switch {
		case i < 0:
			fail(name, "it is left out: toolfinch validate says why", false)
		case checked.config.Servers[i].Fault != "":
			fail(name, checked.config.Servers[i].Fault, false)
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
		w := startWaiting(cmd.ErrOrStderr(), "checking", names)
		rows := d.Refresh(ctx, w.finished, names...)
		w.end()
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

// waiting shows on a terminal for whom a command waits, and for how long. Elsewhere it prints one line at the start.
type waiting struct {
	out   io.Writer // the terminal; nil if there is none
	verb  string
	total int
	start time.Time
	stop  chan struct{}
	ticks sync.WaitGroup

	mu    sync.Mutex // guards names; held over writes to out
	names []string   // for whom it waits
}

// startWaiting begins to wait. The caller calls end.
func startWaiting(w io.Writer, verb string, names []string) *waiting {
	one := &waiting{verb: verb, total: len(names), start: time.Now(), names: slices.Clone(names), stop: make(chan struct{})}
	if !screenOf(w).terminal {
		fmt.Fprintf(w, "%s %s\n", verb, strings.Join(names, ", "))
		return one
	}
	one.out = unfiltered(w)
	one.draw()
	one.ticks.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-one.stop:
				return
			case <-tick.C:
				one.draw()
			}
		}
	})
	return one
}

// finished removes a server from the names.
func (w *waiting) finished(row proxy.Refreshed) {
	w.mu.Lock()
	w.names = slices.DeleteFunc(w.names, func(name string) bool { return name == row.Server })
	w.mu.Unlock()
	w.draw()
}

func (w *waiting) draw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == nil || len(w.names) == 0 {
		return
	}
	text := fmt.Sprintf("%s %d of %d, %d s, waiting for %s", w.verb, w.total-len(w.names), w.total,
		int(time.Since(w.start).Seconds()), strings.Join(w.names, ", "))
	columns := 80
	if f, ok := w.out.(*os.File); ok {
		if s := screenOf(f); s.columns > 0 {
			columns = s.columns
		}
	}
	fmt.Fprint(w.out, "\r\x1b[K"+cut(visible(text), columns-1))
}

func (w *waiting) end() {
	close(w.stop)
	w.ticks.Wait()
	if w.out != nil {
		fmt.Fprint(w.out, "\r\x1b[K")
	}
}
