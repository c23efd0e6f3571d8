package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/embed/models"
)

// summarize prints what setup has done. It is the last text on the screen.
func (p *setupPlan) summarize(out io.Writer, checked checkedServers) error {
	title := func(text string) {
		fmt.Fprintln(out)
		_ = (&table{head: []string{text}, whole: true}).print(out) // the next table fails likewise
	}
	tools := 0
	ready := &table{indent: "  ", whole: true}
	for _, row := range checked.ready {
		tools += row.Diff.Total
		ready.add(row.Server, plural(row.Diff.Total, "tool"))
	}
	if len(checked.ready) > 0 {
		title(fmt.Sprintf("ready: %s with %s", plural(len(checked.ready), "server"), plural(tools, "tool")))
		if err := ready.print(out); err != nil {
			return err
		}
	}
	var disabled []leftRow
	if p.disableFailed {
		disabled = p.movable()
	}
	for _, part := range []struct {
		title string
		rows  []leftRow
	}{{"left in the client", slices.Concat(p.alone, p.kept)}, {"moved, and disabled", disabled}} {
		if len(part.rows) == 0 {
			continue
		}
		title(part.title)
		t := &table{indent: "  ", whole: true}
		for _, row := range part.rows {
			t.add(row.client, orDash(row.server), strings.ReplaceAll(row.why, "\n", "; "))
		}
		if err := t.print(out); err != nil {
			return err
		}
	}
	if err := p.printClients(out, title); err != nil {
		return err
	}
	title("next")
	next := &table{indent: "  ", whole: true}
	if len(p.kept) > 0 {
		next.add("toolfinch setup", "tries again what stayed")
	}
	if len(disabled) > 0 {
		next.add("toolfinch server enable NAME", "enables what was moved disabled")
	}
	if name := modelToPull(checked.config); name != "" {
		next.add("toolfinch model pull", "search by meaning, too, not by words alone ("+name+")")
	}
	if p.config.After != nil {
		next.add("toolfinch setup --undo", "restores every file")
		next.add(uninstallText())
	} else {
		next.add("toolfinch server add", "adds a server that works; then toolfinch setup again")
	}
	return next.print(out)
}

// printClients prints which servers each client has now, and that it must be restarted.
func (p *setupPlan) printClients(out io.Writer, title func(string)) error {
	t := &table{indent: "  ", whole: true}
	for _, c := range p.changes {
		servers, err := configs.ServersIn(c.File, c.After)
		if err != nil {
			continue // the plan has read it before
		}
		var names []string
		for _, s := range servers {
			switch {
			case isOurs(s):
				names = slices.Insert(names, 0, s.Name)
			case !s.Disabled:
				names = append(names, s.Name)
			}
		}
		t.add(c.File.Client.Name, c.path, strings.Join(names, ", "))
	}
	if len(t.rows) == 0 {
		return nil
	}
	title("what the clients have now: restart those that run")
	return t.print(out)
}

// uninstallText returns the commands that remove toolfinch, and what they remove.
func uninstallText() (command, what string) {
	files := "the program"
	if program, err := os.Executable(); err == nil {
		files = pretty(program)
	}
	if data, err := configs.UserDataDir(); err == nil {
		files += " and " + pretty(data)
	}
	return "to uninstall", "close the clients, toolfinch stop, toolfinch setup --undo, then delete " + files
}

// modelToPull returns the model that search by meaning lacks; "" for none.
func modelToPull(config *configs.Config) string {
	if config == nil || config.Embed.Kind != embed.KindAuto && config.Embed.Kind != embed.KindHF {
		return ""
	}
	if _, err := models.Locate(config.Embed.HFModel); err == nil {
		return ""
	}
	return config.Embed.HFModel
}
