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

// greeting describes a proxy to a person at a terminal.
type greeting struct {
	config   *configs.Config
	at, root string   // the HTTP address, or "stdio"; the name of the root view
	views    []string // views with an endpoint
	tools    int      // number of tools known so far
	link     string   // link to the page; "" for none
}

// greetingOf describes a proxy at an address, or over stdio.
func greetingOf(p *proxy.Proxy, config *configs.Config, at string) greeting {
	g := greeting{config: config, at: at, root: p.Root(), tools: p.Tools()}
	if at == configs.TransportStdio {
		return g
	}
	for _, v := range p.Views() {
		if v.Settings.Name != view.Default {
			g.views = append(g.views, v.Settings.Name)
		}
	}
	if path, err := p.UILink(false); err == nil {
		g.link = pageURL(at, path)
	}
	return g
}

func (g greeting) print(w io.Writer) {
	over := g.at != configs.TransportStdio
	t := &table{indent: "  ", whole: true}
	if reached := reachableAt(g.at); over {
		base := "http://" + reached
		t.add("serves", base+"/mcp", g.root)
		if reached != g.at {
			t.add("", "and at the other addresses of this machine")
		}
		for _, name := range g.views[:min(len(g.views), maxGreeted)] {
			t.add("", base+"/mcp/"+url.PathEscape(name), "the view "+name)
		}
		if more := len(g.views) - maxGreeted; more > 0 {
			t.add("", fmt.Sprintf("and %d more views", more), "toolfinch config --resolved")
		}
	} else {
		t.add("serves", "standard input and output", g.root)
	}
	names := serverNames(g.config)
	listed := strings.Join(names[:min(len(names), maxGreeted)], ", ")
	if more := len(names) - maxGreeted; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	t.add("servers", plural(len(names), "server"), listed)
	tools := "none known yet: the servers are asked now"
	if g.tools > 0 {
		tools = plural(g.tools, "tool") + " known"
	}
	t.add("tools", tools)
	if left := len(g.config.Broken); left > 0 {
		t.add("left out", plural(left, "thing")+" of the configuration", "toolfinch validate says which, and why")
	}
	next := &table{indent: "  ", whole: true}
	switch {
	case g.config.Path == "": // the demo's configuration
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
	text.WriteString(on.paint(bold, strings.TrimSpace("toolfinch "+built().Version+"  "+shown(g.config.Path))) + "\n\n")
	_ = t.printOn(&text, on) // a Buffer cannot fail
	if g.link != "" {        // not in the table: the long link would widen its column
		again := ""
		if g.config.Path != "" {
			again = "; toolfinch ui makes another"
		}
		fmt.Fprintf(&text, "\n  page     %s\n           lets one browser in, once and within ten minutes%s\n", g.link, again)
	}
	text.WriteByte('\n')
	_ = next.printOn(&text, on)
	text.WriteByte('\n')
	_, _ = unfiltered(w).Write(text.Bytes()) // a failed greeting does not stop the proxy
}

// maxGreeted bounds the servers and views that the greeting names.
const maxGreeted = 8
