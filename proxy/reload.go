package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"toolfinch/configs"
	"toolfinch/script"
	"toolfinch/upstream"
	"toolfinch/view"
)

// reload is a configuration that waits to be taken, and where to say how it went.
type reload struct {
	config *configs.Config
	done   chan error
}

// ErrEnded is wrapped by the error of what needs Run, once that has ended.
var ErrEnded = errors.New("the proxy has ended")

// Reload takes another configuration while the proxy runs. Servers and views that
// did not change go on, with their connections, sessions and calls; changed
// servers are connected anew. A configuration whose views have errors that the
// present one has not is refused, and nothing changes. What only a restart
// changes is logged. It waits for Run to begin; the error once that has ended
// wraps ErrEnded.
func (p *Proxy) Reload(ctx context.Context, config *configs.Config) error {
	r := reload{config, make(chan error, 1)}
	select {
	case p.reloads <- r:
	case <-p.ended:
		return fmt.Errorf("reload: %w", ErrEnded)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reload is Reload on the refresh loop.
func (p *Proxy) reload(ctx context.Context, config *configs.Config) error {
	if p.options.only != "" && !slices.ContainsFunc(settingsOf(config), func(s view.Settings) bool { return s.Name == p.options.only }) {
		return fmt.Errorf("view %q is being served and cannot be removed", p.options.only)
	}
	programs := p.programs
	p.programs = unedited(programs)
	plans, problems := p.plan(config, p.upstreams(config), nil)
	var refused []error
	for _, problem := range problems {
		if !problem.Warning && !slices.ContainsFunc(p.Problems(), func(old view.Problem) bool { return old.View == problem.View && old.Message == problem.Message }) {
			refused = append(refused, fmt.Errorf("%s:%d:%d: %w", config.Path, problem.At.Line, problem.At.Column, problem))
		}
	}
	if len(refused) > 0 {
		p.programs = programs
		return errors.Join(refused...)
	}
	heard := p.heard
	p.heard = p.heardStill(config)
	next, err := p.build(ctx, config, plans, problems)
	if err != nil {
		p.programs, p.heard = programs, heard
		return err
	}
	if keys := configs.NeedRestart(p.first, config); len(keys) > 0 {
		p.log.Warn("changed, but only a restart takes it", "keys", strings.Join(keys, ", "))
	}
	known := map[string]upstream.Known{}
	for server, said := range p.known {
		known[server] = upstream.Known{Era: said.era, Interactive: said.interactive}
	}
	p.pool.Update(config.Servers, known)
	configured := slices.Clone(config.Disabled)
	for _, s := range config.Servers {
		configured = append(configured, s.Name)
	}
	maps.DeleteFunc(p.known, func(server string, _ *said) bool { return !slices.Contains(configured, server) })
	if _, err := p.store.KeepServers(ctx, configured); err != nil && ctx.Err() == nil {
		p.log.Warn("removed servers are still in the store", "error", err)
	}
	p.show(ctx, next)
	wake(p.uncount)
	wake(p.unembed)
	return nil
}

// heardStill are the servers that were heard of and that another configuration
// leaves as they are.
func (p *Proxy) heardStill(config *configs.Config) map[string]bool {
	heard := map[string]bool{}
	for _, before := range p.served.Load().config.Servers {
		i := slices.IndexFunc(config.Servers, func(s upstream.Settings) bool { return s.Name == before.Name })
		if i >= 0 && p.heard[before.Name] && reflect.DeepEqual(before, config.Servers[i]) {
			heard[before.Name] = true
		}
	}
	return heard
}

// program is a loaded Starlark module and the files it was made of.
type program struct {
	*script.Program
	files map[string]stamp
}

// stamp changes when a file does.
type stamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// unedited are the modules of which no file has changed.
func unedited(programs map[string]program) map[string]program {
	same := map[string]program{}
	for path, one := range programs {
		edited := false
		for file, stamp := range one.files {
			edited = edited || stampOf(file) != stamp
		}
		if !edited {
			same[path] = one
		}
	}
	return same
}

// Modules are the absolute paths of the files that the views' Starlark modules
// were made of.
func (p *Proxy) Modules() []string { return p.served.Load().modules }

// moduleFiles are the files of all programs.
func (p *Proxy) moduleFiles() []string {
	files := map[string]bool{}
	for _, one := range p.programs {
		for file := range one.files {
			files[file] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}

// program returns the Starlark module at path. An edited file is for Reload to
// take: news of an upstream must not bring half an edit.
func (p *Proxy) program(path string) (*script.Program, error) {
	if known, ok := p.programs[path]; ok {
		return known.Program, nil
	}
	loaded, err := script.Load(path, nil, func(line string) { p.log.Info("script", "print", line) })
	if err != nil {
		return nil, err
	}
	one := program{loaded, map[string]stamp{}}
	for _, file := range loaded.Files() {
		one.files[file] = stampOf(file)
	}
	p.programs[path] = one
	return loaded, nil
}
