package main

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"golang.org/x/term"

	"toolfinch/configs"
	"toolfinch/proxy"
	"toolfinch/view"
)

func onTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// greets reports whether a person reads standard error, instead of an agent that reads the log or uses stdio.
func greets(config *configs.Config, stdin io.Reader, stderr io.Writer) bool {
	return config.LogFormat != "json" && onTerminal(unfiltered(stderr)) && (config.Transport == configs.TransportHTTP || onTerminal(stdin))
}

// greet describes a proxy at an address, or over stdio, to a person at a terminal.
func greet(w io.Writer, p *proxy.Proxy, config *configs.Config, at string) {
	over := at != configs.TransportStdio
	var views []string // with an endpoint of their own
	link := ""
	if over {
		for _, v := range p.Views() {
			if v.Settings.Name != view.Default {
				views = append(views, v.Settings.Name)
			}
		}
		if path, err := p.UILink(false); err == nil {
			link = pageURL(at, path)
		}
	}
	t := &table{indent: "  ", whole: true}
	if reached := reachableAt(at); over {
		base := "http://" + reached
		t.add("serves", base+"/mcp", p.Root())
		if reached != at {
			t.add("", "and at the other addresses of this machine")
		}
		for _, name := range views[:min(len(views), maxGreeted)] {
			t.add("", base+"/mcp/"+url.PathEscape(name), "the view "+name)
		}
		if more := len(views) - maxGreeted; more > 0 {
			t.add("", fmt.Sprintf("and %d more views", more), "toolfinch config --resolved")
		}
	} else {
		t.add("serves", "standard input and output", p.Root())
	}
	names := serverNames(config)
	listed := strings.Join(names[:min(len(names), maxGreeted)], ", ")
	if more := len(names) - maxGreeted; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	t.add("servers", plural(len(names), "server"), listed)
	tools := "none known yet: the servers are asked now"
	if known := p.Tools(); known > 0 {
		tools = plural(known, "tool") + " known"
	}
	t.add("tools", tools)
	if left := len(config.Broken); left > 0 {
		t.add("left out", plural(left, "thing")+" of the configuration", "toolfinch validate says which, and why")
	}
	next := &table{indent: "  ", whole: true}
	switch {
	case config.Path == "": // the demo's configuration
	case over:
		next.add("toolfinch status --watch", "shows what it does")
		next.add("toolfinch connect", "gives it to your agent")
	default:
		next.add("", "An MCP client is waited for, and this is a terminal. You may have meant:")
		next.add("toolfinch connect", "has your agent start it")
		next.add("toolfinch serve --port 8080", "serves over HTTP, with a page")
	}
	next.add("Ctrl-C", "ends it")
	var text bytes.Buffer
	on := screenOf(w)
	text.WriteString(on.paint(bold, strings.TrimSpace("toolfinch "+built().Version+"  "+shown(config.Path))) + "\n\n")
	_ = t.printOn(&text, on) // a Buffer cannot fail
	if link != "" {          // not in the table: the long link would widen its column
		again := ""
		if config.Path != "" {
			again = "; toolfinch ui makes another"
		}
		fmt.Fprintf(&text, "\n  page     %s\n           lets one browser in, once and within ten minutes%s\n", link, again)
	}
	text.WriteByte('\n')
	_ = next.printOn(&text, on)
	text.WriteByte('\n')
	_, _ = unfiltered(w).Write(text.Bytes()) // a failed greeting does not stop the proxy
}

// maxGreeted bounds the servers and views that the greeting names.
const maxGreeted = 8
