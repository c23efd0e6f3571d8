package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
)

func newValidate(s *settings) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:         "validate [SERVER...]",
		Annotations: map[string]string{whenInterrupted: "not everything was checked"},
		Short:       "Check the configuration, every server, view, hook and tool of your own",
		Long: `Validate reads the configuration, connects to every enabled server, and compiles
every view with its hooks, composite and custom tools. It also checks the store, the
embedding model, and the entries of clients that start toolfinch with this
configuration. With names it checks only these servers. It prints one line for each,
with the reason of each fault:

  ✓ valid    ! warning    ✗ error    - disabled

Exit codes: 0 no errors, 1 errors, 2 the configuration does not load.`,
		Example: `  toolfinch validate
  toolfinch validate github
  toolfinch validate --json | jq '.checks[] | select(.status == "error")'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			config, err := s.read(cmd, nil)
			if err == nil {
				names, err = namedServers(config, names)
			}
			if err != nil {
				return err
			}
			return s.withWorkspace(cmd, config, s.quietLog(cmd, config), true, func(d *workspace) error {
				checks, err := d.validate(names)
				if err == nil {
					err = show(cmd, map[string]any{"checks": checks}, checkTable(checks), "")
				}
				if err == nil && slices.ContainsFunc(checks, func(c check) bool { return c.Status == statusError }) {
					err = &exitError{code: exitFailed}
				}
				return err
			})
		},
	}, "print one JSON object")
}

type status string

const (
	statusOK       status = "ok"
	statusWarning  status = "warning"
	statusError    status = "error"
	statusDisabled status = "disabled"
)

// marks are the characters and colours of statuses.
var marks = map[status]struct{ text, colour string }{
	statusOK: {"✓", green}, statusWarning: {"!", yellow}, statusError: {"✗", red}, statusDisabled: {"-", faint},
}

// check is one line of validate's output. Each problem of a subject has its own check.
type check struct {
	Status status `json:"status"`
	Kind   string `json:"kind"` // config, store, model, server, view, hook, composite, custom, root or client
	Name   string `json:"name"`
	Line   int    `json:"line,omitempty"` // line of the configuration, from 1
	Text   string `json:"text,omitempty"` // the problem, or a description of the subject
	Tools  *int   `json:"tools,omitempty"`
	Millis *int64 `json:"ms,omitempty"`
}

// validate checks the named servers, or else the configuration, the store, the model, all servers, the views with their
// hooks and tools, and the clients.
func (d *workspace) validate(names []string) (checks []check, err error) {
	if len(names) > 0 {
		for _, part := range d.checkServers(names) {
			checks = append(checks, part.lines()...)
		}
		return checks, d.interrupted()
	}
	file := filepath.Base(d.config.Path)
	for _, warning := range d.config.Warnings {
		text := warning.Message
		if warning.Hint != "" {
			text += " (" + warning.Hint + ")"
		}
		checks = append(checks, check{Status: statusWarning, Kind: "config", Name: file, Line: warning.Line, Text: text})
	}
	for _, broken := range d.config.Broken {
		text := broken.Message
		if broken.Hint != "" {
			text += " (" + broken.Hint + ")"
		}
		checks = append(checks, check{Status: statusError, Kind: "config", Name: file, Line: broken.Line, Text: text})
	}
	if len(checks) == 0 {
		checks = append(checks, check{Status: statusOK, Kind: "config", Name: file})
	}
	checks = append(checks, checkStore(d.cmd.Context(), d.config.Places()), d.checkModel())
	parts := d.checkServers(nil)
	if err := d.interrupted(); err != nil {
		return nil, err
	}
	for _, part := range parts {
		part.countBroken(parts)
		checks = append(checks, part.lines()...)
	}
	if len(d.config.Views)+len(d.config.BrokenViews) > 0 {
		root := check{Status: statusOK, Kind: "root", Name: "/mcp", Text: d.Root()}
		// The root combines the views, so it has their problems.
		if len(d.config.BrokenViews) > 0 || slices.ContainsFunc(checks, func(c check) bool { return c.Kind == "view" && c.Status != statusOK }) {
			root.Status, root.Text = statusWarning, root.Text+"; not all views are well, see above"
		}
		checks = append(checks, root)
	}
	return append(checks, checkClients(d.config)...), nil
}

// interrupted returns the cause if the command was interrupted.
func (d *workspace) interrupted() error {
	if d.cmd.Context().Err() == nil {
		return nil
	}
	return context.Cause(d.cmd.Context())
}

// checkServers connects to the named servers and returns these with their problems; without names to all servers, and
// the views follow.
func (d *workspace) checkServers(names []string) []*subject {
	rows := map[string]proxy.Refreshed{}
	for _, row := range d.refresh(d.cmd.Context(), names...) {
		rows[row.Server] = row
	}
	parts := d.subjects(rows, names == nil)
	sorted := slices.Clone(d.Problems())
	slices.SortStableFunc(sorted, func(a, b view.Problem) int {
		return cmp.Or(cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column))
	})
	for _, problem := range sorted {
		part := subjectOf(parts, problem)
		problem.View = "" // the check's Name has the view already
		c := check{Status: statusError, Kind: part.check.Kind, Name: part.check.Name, Line: problem.At.Line, Text: problem.Error()}
		if problem.Warning {
			c.Status = statusWarning
		}
		part.problems = append(part.problems, c)
	}
	if names == nil {
		return parts
	}
	return slices.DeleteFunc(parts, func(p *subject) bool { return p.check.Kind != "server" || !slices.Contains(names, p.check.Name) })
}

// subject is a server, a view, a hook or a tool. It has its own lines in the output.
type subject struct {
	check    check // without problems
	view     string
	places   []view.Place
	problems []check
}

// lines returns a line for each problem, or one line if there is none. A server always has its own first line, with the
// worst status.
func (p *subject) lines() []check {
	if len(p.problems) == 0 || p.check.Kind == "server" {
		for _, problem := range p.problems {
			if p.check.Status != statusError {
				p.check.Status = problem.Status
			}
		}
		return append([]check{p.check}, p.problems...)
	}
	return p.problems
}

// countBroken warns about a view whose own hooks or tools are broken.
func (p *subject) countBroken(parts []*subject) {
	if p.check.Kind != "view" {
		return
	}
	broken := 0
	for _, other := range parts {
		if other.view == p.view && slices.ContainsFunc(other.problems, func(c check) bool { return c.Status == statusError }) {
			broken++
		}
	}
	if broken > 0 {
		p.check.Status, p.check.Text = statusWarning, fmt.Sprintf("%s; %d of its own broken, see below", p.check.Text, broken)
	}
}

// subjects returns the servers, and then each view with its hooks and tools. A server whose settings
// cannot be used is left out if all is set.
func (d *workspace) subjects(rows map[string]proxy.Refreshed, all bool) []*subject {
	var parts []*subject
	warnings := d.Warnings()
	for _, s := range d.config.Servers {
		if s.Fault != "" && all {
			continue // config has a line for it
		}
		parts = append(parts, serverPart(s, d.config.Tools, rows[s.Name], warningsOf(warnings, s.Name)))
	}
	for _, name := range d.config.Disabled {
		parts = append(parts, &subject{check: check{Status: statusDisabled, Kind: "server", Name: name, Text: "disabled"}})
	}
	for _, v := range d.Views() {
		settings := v.Settings
		n, skills := len(v.Tools()), len(v.Catalog.Items(tool.KindSkill))
		viewOf := func(kind, name string, places ...view.Place) *subject {
			return &subject{check: check{Status: statusOK, Kind: kind, Name: name, Line: places[0].Line}, view: settings.Name, places: places}
		}
		own := viewOf("view", settings.Name, settings.At)
		own.check.Tools = &n
		own.check.Text = plural(n, "tool")
		if skills > 0 {
			own.check.Text += ", " + plural(skills, "skill")
		}
		own.check.Text += ", " + string(cmp.Or(settings.Exposure, view.ExposureAuto))
		if cmp.Or(settings.Schemas, d.config.Schemas) != view.SchemasAsIs {
			own.check.Text += ported(v.Tools())
		}
		own.countMissing(d.config, settings, rows, n+skills)
		parts = append(parts, own)
		for _, hook := range []struct {
			event string
			*view.Hook
		}{{"pre_call", settings.Hooks.PreCall}, {"post_call", settings.Hooks.PostCall}} {
			if hook.Hook != nil {
				one := viewOf("hook", settings.Name+"."+hook.event, hook.At)
				one.check.Text = nameOf(hook.Hook)
				parts = append(parts, one)
			}
		}
		for _, c := range settings.Composites {
			places := []view.Place{c.At}
			for _, step := range c.Steps {
				places = append(places, step.At)
			}
			one := viewOf("composite", settings.Name+"."+c.Name, places...)
			one.check.Text = plural(len(c.Steps), "step")
			if c.LeftOut > 0 {
				one.check.Status, one.check.Text = statusWarning, fmt.Sprintf("%s, without %d of disabled servers", one.check.Text, c.LeftOut)
			}
			parts = append(parts, one)
		}
		for _, c := range settings.Customs {
			one := viewOf("custom", settings.Name+"."+c.CalledAs(), c.At)
			one.check.Text = cmp.Or(c.Python, filepath.Base(c.Module)+":"+c.Function)
			parts = append(parts, one)
		}
	}
	return parts
}

// ported counts and shows the input schemas that clients are listed otherwise, so that all model providers take them.
func ported(tools []*tool.Tool) string {
	const most = 3
	var shown []string
	for _, t := range tools {
		if p := tool.Portable(t.Def.InputSchema); p != nil {
			shown = append(shown, rawjson.Clip(printable.Line(t.Name+": "+strings.Join(p.Changes, ", ")), 200))
		}
	}
	n := len(shown)
	if n == 0 {
		return ""
	}
	if n > most {
		shown = append(shown[:most], fmt.Sprintf("and %d more", n-most))
	}
	return fmt.Sprintf("; %s made portable (%s)", plural(n, "input schema"), strings.Join(shown, "; "))
}

func serverPart(s upstream.Settings, tools []view.UpstreamTools, row proxy.Refreshed, warnings []string) *subject {
	ms := row.Took.Milliseconds()
	p := &subject{check: check{Status: statusOK, Kind: "server", Name: s.Name, Tools: &row.Diff.Total, Millis: &ms}}
	p.check.Text = fmt.Sprintf("%s in %s", plural(row.Diff.Total, "tool"), row.Took.Round(time.Millisecond))
	if !row.Failed.At.IsZero() && row.Err == nil {
		p.check.Text += fmt.Sprintf("; failed %s: %s", minute(row.Failed.At), row.Failed.Reason)
	}
	if row.Err != nil {
		p.check.Status, p.check.Tools, p.check.Text = statusError, nil, reasonOf(row.Err)
	}
	if s.Sandbox.On() {
		switch err := s.Sandbox.Check(); {
		case err == nil:
			p.problems = append(p.problems, check{Status: statusOK, Kind: "server", Name: s.Name, Text: "sandbox: " + s.Sandbox.String()})
		case row.Err == nil:
			p.problems = append(p.problems, check{Status: statusWarning, Kind: "server", Name: s.Name, Text: err.Error()})
		}
	}
	p.problems = append(p.problems, faultLines(s.Name, row.Faults)...)
	if row.Held > 0 {
		p.problems = append(p.problems, check{Status: statusWarning, Kind: "server", Name: s.Name, Text: heldText(row.Held)})
	}
	for _, line := range warnings {
		p.problems = append(p.problems, check{Status: statusWarning, Kind: "server", Name: s.Name, Text: line})
	}
	for _, server := range tools {
		if server.Name != s.Name {
			continue
		}
		p.places = append(p.places, server.At)
		for _, override := range server.Tools {
			p.places = append(p.places, override.At)
			for _, parameter := range override.Parameters {
				p.places = append(p.places, parameter.At)
			}
		}
	}
	return p
}

func faultLines(server string, faults upstream.Faults) (lines []check) {
	line := func(text string) {
		lines = append(lines, check{Status: statusWarning, Kind: "server", Name: server, Text: text})
	}
	for _, fault := range faults.Described {
		state := "is left out"
		if fault.Mended {
			state = "is mended"
		}
		line(fmt.Sprintf("the %s %s %s: %s", fault.Kind, fault.Name, state, fault.Text))
	}
	if more := faults.LeftOut + faults.Mended - len(faults.Described); more > 0 {
		line(fmt.Sprintf("%d more definitions are malformed", more))
	}
	return lines
}

// reasonOf returns the error's text without the server's name.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*upstream.Error](err); ok {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return err.Error()
}

// nameOf returns the name of a hook's function or program.
func nameOf(h *view.Hook) string {
	if h.Module != "" {
		return filepath.Base(h.Module) + ":" + h.Function
	}
	if len(h.Command) == 0 {
		return h.Python
	}
	return filepath.Base(h.Command[0])
}

// subjectOf returns the subject at a problem's place, or else its view, or else the first subject. At a place where
// both a view and a composite begin, it returns the composite.
func subjectOf(parts []*subject, problem view.Problem) *subject {
	found, best := parts[0], 0
	for _, p := range parts {
		fits, here := 0, slices.Contains(p.places, problem.At)
		switch inView := p.view == problem.View; {
		case inView && here && p.check.Kind != "view":
			fits = 3
		case inView && p.check.Kind == "view":
			fits = 2
		case here:
			fits = 1
		}
		if fits > best {
			found, best = p, fits
		}
	}
	return found
}

func plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return humanize.Comma(int64(n)) + " " + what + "s"
}

func checkTable(checks []check) *table {
	t := &table{paint: func(row, column int) string {
		if column > 0 {
			return ""
		}
		return marks[checks[row].Status].colour
	}}
	for _, c := range checks {
		text := c.Text
		if c.Line > 0 && (c.Status == statusError || c.Status == statusWarning) {
			text = fmt.Sprintf("line %d: %s", c.Line, text)
		}
		t.add(marks[c.Status].text, c.Kind, c.Name, strings.TrimSpace(text))
	}
	return t
}
