package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/embed/models"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/view"
)

// modelWait bounds validate's wait for the model or its endpoint.
const modelWait = 20 * time.Second

func checkStore(ctx context.Context, at configs.Places) check {
	c := check{Status: statusOK, Kind: "store", Name: filepath.Base(at.StoreName())}
	switch known, err := store.Check(ctx, at.Store); {
	case err != nil:
		c.Status, c.Text = statusError, fmt.Sprintf("what was learned cannot be used: %v", err)
	case !known:
		c.Text = "nothing was indexed yet"
	}
	return c
}

// lastFailures returns a line for each server that failed when it was last started; "" if the store cannot be read.
func lastFailures(ctx context.Context, at configs.Places) (lines string) {
	db, err := store.OpenExisting(ctx, at.Store, slog.New(slog.DiscardHandler))
	if err != nil {
		return ""
	}
	defer db.Close()
	failures, err := db.Failures(ctx)
	if err != nil {
		return ""
	}
	for _, f := range failures {
		lines += fmt.Sprintf("\n%s failed %s: %s", f.Server, minute(f.At), visible(f.Reason))
	}
	return lines
}

// checkModel embeds a text with the configured embedder.
func (d *workspace) checkModel() check {
	settings := d.config.Embed
	c := check{Status: statusOK, Kind: "model", Name: settings.HFModel}
	switch settings.Kind {
	case embed.KindBM25:
		c.Name, c.Text = settings.Kind, "search goes by words alone"
		return c
	case embed.KindOpenAI:
		c.Name = settings.OpenAI.Model
	case embed.KindAuto, "":
		if _, err := models.Locate(settings.HFModel); errors.Is(err, models.ErrMissing) {
			c.Status, c.Text = statusDisabled, "search goes by words; to search by meaning, too: toolfinch model pull"
			return c
		}
	}
	ctx, cancel := context.WithTimeoutCause(d.cmd.Context(), modelWait, fmt.Errorf("there is no vector after %s", modelWait))
	defer cancel()
	embedder, err := embed.Open(ctx, settings, slog.New(slog.DiscardHandler))
	if err == nil {
		_, err = embedder.Embed(ctx, embed.Query, []string{"tool"})
		err = errors.Join(err, embedder.Close())
	}
	if err != nil {
		c.Status, c.Text = statusError, err.Error()
	}
	return c
}

// checkClients checks the entries in clients' files that start toolfinch with this configuration. It skips unreadable
// files.
func checkClients(config *configs.Config) (checks []check) {
	files, _ := filesOf(nil, system()) // fails only for names
	found, _ := findServers(files, system())
	for _, f := range found {
		s := f.server
		if s.Command == "" || !slices.Contains(s.Args, "serve") || !slices.ContainsFunc(s.Args, func(arg string) bool {
			return samePath(strings.TrimPrefix(arg, "--config="), config.Path)
		}) {
			continue
		}
		c := check{Status: statusOK, Kind: "client", Name: f.file.Client.ID, Text: f.shown}
		if s.Disabled {
			c.Status, c.Text = statusDisabled, fmt.Sprintf("%s: %q is disabled there", f.shown, s.Name)
		} else if _, err := exec.LookPath(s.Command); err != nil {
			c.Status, c.Text = statusError, fmt.Sprintf("%s: %q starts %s, which is not there (mend it: toolfinch connect %s)", f.shown, s.Name, s.Command, f.file.Client.ID)
		} else if i := slices.Index(s.Args, "--view"); i >= 0 && i+1 < len(s.Args) && !hasView(config, s.Args[i+1]) {
			c.Status, c.Text = statusError, fmt.Sprintf("%s: %q serves the view %q, which is not there", f.shown, s.Name, s.Args[i+1])
		}
		checks = append(checks, c)
	}
	return checks
}

func hasView(config *configs.Config, name string) bool {
	return name == view.Default || slices.ContainsFunc(config.Views, func(v view.Settings) bool { return v.Name == name })
}

// countMissing warns about a view with failed servers, or that has nothing: has counts its tools and skills.
func (p *subject) countMissing(config *configs.Config, settings view.Settings, rows map[string]proxy.Refreshed, has int) {
	var missing []string
	for _, s := range config.Servers {
		if rows[s.Name].Err != nil && usesServer(config, settings, s.Name) {
			missing = append(missing, s.Name)
		}
	}
	switch len(missing) {
	case 0:
	case 1:
		p.check.Text += fmt.Sprintf("; %s does not answer", missing[0])
	default:
		p.check.Text += fmt.Sprintf("; %s do not answer", strings.Join(missing, ", "))
	}
	if len(missing) > 0 || has == 0 {
		p.check.Status = statusWarning
	}
}

// usesServer reports whether a view uses a server. The built-in root uses all servers, or the servers of its views.
func usesServer(config *configs.Config, settings view.Settings, server string) bool {
	uses := func(v view.Settings) bool {
		return v.IncludeAll || slices.ContainsFunc(v.Tools, func(s view.UpstreamTools) bool { return s.Name == server })
	}
	if settings.Name == view.Default && !slices.ContainsFunc(config.Views, func(v view.Settings) bool { return v.Name == view.Default }) {
		return config.Root() != configs.RootViews || slices.ContainsFunc(config.Views, uses)
	}
	return uses(settings)
}
