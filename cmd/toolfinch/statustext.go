package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"toolfinch/internal/identity"
	"toolfinch/proxy/web"
	"toolfinch/upstream"
)

// Most lines of each kind in the status as text; --json has more.
const (
	textSessions = 10
	textCalls    = 10
	textErrors   = 5
	textStderr   = 3
)

// slowStart is how long a server may start before it is shown as a problem.
const slowStart = 10 * time.Second

// text returns the status for people. Unless whole, lines are cut to the width of the screen.
func (f found) text(on screen, whole bool) []byte {
	t := &statusText{on: on, whole: whole}
	for i, one := range f.Running {
		if i > 0 {
			t.line("", "")
		}
		t.process(one)
	}
	if len(f.Running) == 0 && !whole { // if whole, the caller prints none as an error
		t.line("", f.none)
	}
	if len(f.Running) > 0 && len(f.notes) > 0 {
		t.line("", "")
		for _, note := range f.notes {
			t.line(faint, note)
		}
	}
	return t.out.Bytes()
}

// statusText is a status being written for a screen.
type statusText struct {
	on    screen
	whole bool
	out   bytes.Buffer
}

// line adds a line. It escapes the text, which may come from a server.
func (t *statusText) line(colour, text string) {
	text = visible(oneLine(text))
	if !t.whole && t.on.columns > 0 {
		text = cut(text, t.on.columns)
	}
	t.out.WriteString(t.on.paint(colour, text) + "\n")
}

// section adds a blank line and a table.
func (t *statusText) section(rows *table) {
	if len(rows.rows) == 0 {
		return
	}
	t.line("", "")
	rows.whole = t.whole
	_ = rows.printOn(&t.out, t.on) // a Buffer cannot fail
}

func (t *statusText) process(s web.Status) {
	t.line(bold, headOf(s))
	t.line("", sumOf(s))
	if s.Refused != "" {
		t.line(red, "the configuration was edited, and the one before is served: "+s.Refused)
	}
	for _, why := range s.Beside {
		t.line(yellow, "runs beside another toolfinch: "+why)
	}
	if s.Store != "" {
		t.line(red, "nothing can be stored: "+s.Store)
	}
	if s.Replicas != nil {
		for _, line := range s.Replicas.Differ {
			t.line(yellow, "replicas: "+line)
		}
	}
	t.section(unwellTable(s, t.whole))
	t.section(stateTable(s))
	t.section(replicaTable(s))
	t.section(sessionTable(s))
	t.section(runningTable(s))
	t.section(errorTable(s))
	t.section(limitTable(s))
}

func headOf(s web.Status) string {
	parts := []string{"toolfinch " + cmp.Or(s.Version, "of an older version")}
	if s.PID != 0 {
		parts = append(parts, fmt.Sprintf("process %d", s.PID))
	}
	if s.View != "" {
		parts = append(parts, "view "+s.View)
	}
	at := s.At
	if s.PID != 0 && at != "" {
		at = running{Status: s}.served()
	}
	parts = append(parts, at, "up "+lasting(s.Now.Sub(s.Started)))
	if s.Configuration != "" {
		parts = append(parts, shown(s.Configuration))
	}
	return strings.Join(parts, " | ")
}

func sumOf(s web.Status) string {
	ready, tools := 0, 0
	for _, server := range s.Servers {
		if server.State == string(upstream.StateReady) {
			ready++
		}
	}
	for _, v := range s.Views {
		tools = max(tools, v.Tools)
	}
	servers := fmt.Sprintf("%d of %s ready", ready, plural(len(s.Servers), "server"))
	if ready == len(s.Servers) {
		servers = plural(ready, "server") + " ready"
	}
	parts := []string{servers, plural(tools, "tool"), plural(s.Sessions.All, "client"), plural(s.Calls.InFlight, "call") + " running"}
	for _, last := range s.Calls.Last {
		part := fmt.Sprintf("last %d min: %s", last.Minutes, plural(last.Calls, "call"))
		if last.Failed > 0 {
			part += fmt.Sprintf(", %s failed", humanize.Comma(int64(last.Failed)))
		}
		parts = append(parts, part)
	}
	if saved := s.Tokens.AllListed - s.Tokens.Read; s.Tokens.AllListed > 0 {
		parts = append(parts, fmt.Sprintf("tokens saved: %.0f %%", 100*float64(saved)/float64(s.Tokens.AllListed)))
	}
	switch search := s.Search; {
	case search.Reason != "":
		parts = append(parts, "search by words alone: "+search.Reason)
	case search.Model == "":
		parts = append(parts, "search by words")
	case search.Embedded < search.Indexed:
		parts = append(parts, fmt.Sprintf("search by words; by meaning, too, for %s of %s", humanize.Comma(int64(search.Embedded)), humanize.Comma(int64(search.Indexed))))
	default:
		parts = append(parts, "search by words and meaning")
	}
	return strings.Join(parts, " | ")
}

// unwellTable returns a table of servers with problems, and of commands that help. With words it adds the servers' last
// log lines.
func unwellTable(s web.Status, words bool) *table {
	t := &table{}
	var todo []string
	for _, server := range s.Servers {
		why, do := unwell(server, s.Now)
		if why != "" {
			t.add("!", server.Name, why)
			if words {
				for _, line := range lastWords(server) {
					t.add("|", "", line)
				}
			}
		}
		for _, one := range do {
			if !slices.Contains(todo, one) {
				todo = append(todo, one)
			}
		}
	}
	for _, one := range todo {
		t.add("", "", "-> "+one)
	}
	t.paint = func(row, column int) string {
		switch {
		case t.rows[row][0] == "":
			return bold
		case t.rows[row][0] == "|":
			return faint
		case column < 2:
			return red
		}
		return ""
	}
	return t
}

// lastWords returns the last lines of standard error of a failed or starting server, without lines that its error
// repeats.
func lastWords(s web.ServerStatus) []string {
	if state := upstream.State(s.State); state != upstream.StateFailed && !state.Starts() {
		return nil
	}
	lines := slices.DeleteFunc(slices.Clone(s.Stderr), func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.Contains(s.Error, strings.TrimSpace(line))
	})
	return lines[max(len(lines)-textStderr, 0):]
}

// unwell returns a description of a server's problem, "" for none, and commands that help.
func unwell(s web.ServerStatus, now time.Time) (why string, do []string) {
	since := lasting(now.Sub(s.Since))
	reason := strings.TrimPrefix(s.Error, "upstream "+s.Name+": ")
	switch upstream.State(s.State) {
	case upstream.StateLogin:
		why = reason + " (for " + since + ")"
		do = append(do, "toolfinch server login "+s.Name)
	case upstream.StateFailed:
		why = "failed for " + since + ": " + reason
		do = append(do, "toolfinch validate (tries each server now)", "toolfinch server show (how each is started)")
	case upstream.StatePending, upstream.StateQueued, upstream.StateDownloading:
		switch {
		case reason != "":
			why = "failed " + lasting(now.Sub(s.Failed)) + " ago, and is tried again: " + reason
		case s.State == string(upstream.StateQueued) && now.Sub(s.Since) >= slowStart:
			why = "has waited " + since + " for its turn: few servers start at once (starting in the configuration)"
		case now.Sub(s.Since) >= slowStart:
			why = "has not answered for " + since + "; its first start may download it"
			do = append(do, "toolfinch server show (how each is started)")
		}
	}
	if s.Held > 0 {
		why = strings.TrimPrefix(why+"; "+plural(s.Held, "definition")+" held: changed since the first list", "; ")
		do = append(do, "toolfinch pins "+s.Name)
	}
	return why, do
}

func stateTable(s web.Status) *table {
	t := &table{head: []string{"SERVER", "STATE", "FOR", "TOOLS", "RESTARTS", "ERA", "TRANSPORT", "PROCESS"}}
	for _, server := range s.Servers {
		process := "-"
		if server.PID != 0 {
			process = strconv.Itoa(server.PID)
		}
		t.add(server.Name, server.State, lasting(s.Now.Sub(server.Since)), strconv.Itoa(server.Tools), strconv.Itoa(server.Restarts), cmp.Or(server.Era, "-"), cmp.Or(server.Transport, "-"), process)
	}
	t.paint = func(row, column int) string {
		if column != 1 {
			return ""
		}
		switch upstream.State(t.rows[row][1]) {
		case upstream.StateReady:
			return green
		case upstream.StatePending, upstream.StateQueued, upstream.StateDownloading:
			return yellow
		}
		return red
	}
	return t
}

func replicaTable(s web.Status) *table {
	t := &table{head: []string{"REPLICA", "UP", "VERSION", "LEADS"}}
	if s.Replicas == nil {
		return t
	}
	for _, one := range s.Replicas.Shown {
		name := one.Name
		if one.This {
			name += " (this one"
			if n := s.Replicas.Sessions; n != nil {
				name += ", " + plural(*n, "session")
			}
			name += ")"
		}
		t.add(name, lasting(time.Duration(one.Seconds)*time.Second), one.Version, plural(len(one.Leads), "server"))
	}
	return t
}

func sessionTable(s web.Status) *table {
	t := &table{head: []string{"CLIENT", "FOR", "VIEW", "ERA", "TRANSPORT", "PRINCIPAL"}}
	for _, one := range s.Sessions.Shown[:min(len(s.Sessions.Shown), textSessions)] {
		t.add(cmp.Or(one.Client, "(no name)"), lasting(s.Now.Sub(one.Since)), one.View, one.Era, cmp.Or(one.Transport, "-"), cmp.Or(one.Principal, "-"))
	}
	t.more(s.Sessions.All, "clients")
	return t
}

func runningTable(s web.Status) *table {
	t := &table{head: []string{"RUNNING", "FOR", "VIEW", "CLIENT", "PRINCIPAL"}}
	for _, one := range s.Calls.Shown[:min(len(s.Calls.Shown), textCalls)] {
		t.add(calledAs(one), lasting(s.Now.Sub(one.Began)), one.View, cmp.Or(one.Client, "-"), cmp.Or(one.Principal, "-"))
	}
	t.more(s.Calls.InFlight, "calls")
	return t
}

// more adds a row with the number of rows that are not shown.
func (t *table) more(all int, what string) {
	if left := all - len(t.rows); left > 0 {
		t.add(fmt.Sprintf("... %s more %s", humanize.Comma(int64(left)), what))
	}
}

func errorTable(s web.Status) *table {
	t := &table{head: []string{"LAST ERRORS", "AGO", "OUTCOME", "CLIENT", "REASON"}}
	for _, one := range s.Errors[:min(len(s.Errors), textErrors)] {
		reason := one.Reason
		if one.Outcome == identity.ToolError {
			reason = cmp.Or(reason, "the tool says so in its answer")
		}
		if one.Said != "" {
			reason = strings.TrimPrefix(reason+": "+one.Said, ": ")
		}
		t.add(calledAs(one), lasting(s.Now.Sub(one.Began)), one.Outcome, cmp.Or(one.Client, "-"), cmp.Or(reason, "-"))
	}
	return t
}

func limitTable(s web.Status) *table {
	t := &table{head: []string{"LIMIT REACHED", "TIMES", "NOW", "OF"}}
	for _, one := range s.Limits {
		t.add(one.Name, humanize.Comma(one.Hits), humanize.Comma(one.Used), humanize.Comma(one.Max))
	}
	return t
}

// calledAs returns a call's tool ID, or else the called name.
func calledAs(c web.CallStatus) string {
	called := cmp.Or(c.Tool, c.Name)
	switch c.Kind {
	case identity.EventRead:
		return "read " + called
	case identity.EventPrompt:
		return "prompt " + called
	}
	return called
}

// lasting formats a duration with at most two units.
func lasting(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0).Truncate(time.Second)
	units := []struct {
		of   time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, unit := range units {
		n := d / unit.of
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%d%s", n, unit.name)
		if i+1 < len(units) {
			if rest := d % unit.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}
