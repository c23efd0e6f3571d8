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

// onTerminal reports whether a stream is a terminal.
func onTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// greets reports whether a person is told what is served: one who sees standard error, and
// not an agent that reads the log or waits at the other end of stdio.
func greets(config *configs.Config, stdin io.Reader, stderr io.Writer) bool {
	return config.LogFormat != "json" && onTerminal(unfiltered(stderr)) && (config.Transport == configs.TransportHTTP || onTerminal(stdin))
}

// greeting is what is served, for a person at a terminal.
type greeting struct {
	config   *configs.Config
	at, root string   // the address of HTTP, or "stdio"; what is served where no view is named
	views    []string // that have an endpoint of their own
	tools    int      // that are known already
	link     string   // to the page, "" where there is none
}

// greetingOf is what a proxy serves at an address, or over stdio.
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

// print prints what there is, and what to do next.
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
	var names []string
	for _, s := range g.config.Servers {
		names = append(names, s.Name)
	}
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
	case g.config.Path == "": // of the demo
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
	if g.link != "" {        // apart, as it is longer than anything else
		again := ""
		if g.config.Path != "" {
			again = "; toolfinch ui makes another"
		}
		fmt.Fprintf(&text, "\n  page     %s\n           lets one browser in, once and within ten minutes%s\n", g.link, again)
	}
	text.WriteByte('\n')
	_ = next.printOn(&text, on)
	text.WriteByte('\n')
	_, _ = unfiltered(w).Write(text.Bytes()) // nobody is there to be told
}

// maxGreeted is how many servers and views are named.
const maxGreeted = 8
