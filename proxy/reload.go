package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolfinch/configs"
	"toolfinch/proxy/served"
	"toolfinch/trust/rate"
	"toolfinch/view"
)

// Reload serves another configuration while the proxy runs. Unchanged servers and views keep their connections,
// sessions and calls; changed servers are connected again. If the views of the new configuration have errors that the
// served views do not have, Reload refuses it and nothing changes. Changed keys that need a restart are logged. Reload
// waits for Run to begin; after Run has ended, the error wraps ErrEnded.
func (p *Proxy) Reload(ctx context.Context, config *configs.Config) error {
	var err error
	if ended := p.loop.do(ctx, func(ctx context.Context) {
		err = p.loop.reload(ctx, config)
		p.audit.loaded(ctx, config, err)
	}); ended != nil {
		return fmt.Errorf("reload: %w", ended)
	}
	return err
}

// reload does the work of Reload on the loop.
func (l *loop) reload(ctx context.Context, config *configs.Config) (err error) {
	if l.only != "" && l.only != served.RootOf(config) && !slices.ContainsFunc(served.SettingsOf(config), func(s view.Settings) bool { return s.Name == l.only }) {
		return fmt.Errorf("view %q is being served and cannot be removed", l.only)
	}
	before := l.now.Load()
	if l.only == "" && !narrows(before.Config, config) {
		return fmt.Errorf("default_view: the root serves %s and would serve %s: only a restart changes that", rootInWords(before.Config), rootInWords(config))
	}
	next := before.next(config)
	next.modules, next.python = before.modules.Unedited(), before.python.Current(config.Python)
	l.readSkills(next)
	next.Limits = rate.New(config.RateLimits, before.Limits)
	l.others.share(next.Limits)
	heard, began, failures, unused := l.known.listedThisRun, l.known.began, l.known.failures, before.python
	defer func() {
		if err != nil {
			l.known.listedThisRun, l.known.began, l.known.failures, unused = heard, began, failures, next.python
		}
		if before.python != next.python {
			unused.Retire()
		}
	}()
	l.known.listedThisRun, l.known.failures = l.known.unchanged(before.Config, config)
	l.known.began = map[string]time.Time{}
	accept := func(problems []view.Problem) error { return l.refuse(config, problems) }
	if err := l.build(ctx, next, l.known.of(config, l.upstreamTools), nil, accept); err != nil {
		return err
	}
	if keys := configs.NeedRestart(l.first, config); len(keys) > 0 {
		l.log.Warn("changed, but only a restart takes it", "keys", strings.Join(keys, ", "))
	}
	l.late = map[string]bool{}
	l.others.compete(config)
	l.pool.Update(config.Servers, l.known.ofPool())
	l.known.forget(ctx, config)
	l.show(ctx, next)
	l.wake()
	return nil
}

// narrows reports whether the root stays the same, or changes from everything to a view with the same name: open
// sessions must not reach tools past the views.
func narrows(before, after *configs.Config) bool {
	return before.Root() == after.Root() || before.Root() == configs.RootAll && served.RootOf(before) == served.RootOf(after)
}

func rootInWords(config *configs.Config) string {
	switch root := config.Root(); root {
	case configs.RootAll:
		return "every tool, past all views"
	case configs.RootViews:
		return "the views together"
	case configs.RootNone:
		return "nothing"
	default:
		return "the view " + root
	}
}

// refuse returns the errors of a configuration that the served configuration does not have.
func (l *loop) refuse(config *configs.Config, problems []view.Problem) error {
	var refused []error
	for _, problem := range problems {
		if !problem.Warning && !slices.ContainsFunc(l.Problems(), func(old view.Problem) bool { return old.View == problem.View && old.Message == problem.Message }) {
			refused = append(refused, fmt.Errorf("%s:%d:%d: %w", config.Path, problem.At.Line, problem.At.Column, problem))
		}
	}
	for _, broken := range config.Broken {
		if !slices.ContainsFunc(l.now.Load().Config.Broken, func(old *configs.Error) bool { return old.Message == broken.Message }) {
			refused = append(refused, broken)
		}
	}
	return errors.Join(refused...)
}

// Modules returns the absolute paths of the source files of the views' modules in Starlark and Python.
func (p *Proxy) Modules() []string { return p.now.Load().files }
