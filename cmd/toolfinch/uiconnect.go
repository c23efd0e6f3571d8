package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/proxy/web/page"
	"toolfinch/trust/inbound"
)

// connector shows on the page how to connect clients.
type connector struct {
	*settings
	url   string // URL for clients; "" without HTTP
	proof bool   // clients need credentials
}

// newConnector returns the connector of a toolfinch that listens at an address.
func newConnector(config *configs.Config, at net.Addr) connector {
	host, port, _ := net.SplitHostPort(at.String())
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		host = "127.0.0.1" // the clients are on this machine
	}
	return connector{&settings{config: config.Path}, cmp.Or(config.Auth.Resource, "http://"+net.JoinHostPort(host, port)+"/mcp"), config.Auth.Mode == inbound.Proof}
}

func (c connector) flags(how page.Connection) connectFlags {
	f := connectFlags{view: how.View}
	if how.HTTP {
		f.http = c.url
	}
	return f
}

// Clients returns the clients that connect knows, installed clients first.
func (c connector) Clients() (all []page.Client) {
	rows, err := clientRows(system())
	if err != nil {
		return nil // fails only without a home directory
	}
	for _, r := range rows {
		all = append(all, page.Client{ID: r.Client, Name: r.Name, File: r.File, Found: r.Found, Connected: r.Connected, Problem: r.Problem})
	}
	rank := func(one page.Client) int {
		switch {
		case one.Connected:
			return 0
		case one.Found:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b page.Client) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

// Views returns the names of the configuration's views.
func (c connector) Views() []string {
	names, _ := configs.ViewNames(c.config) // none while the file is broken by an edit
	return names
}

func (c connector) file(how page.Connection) (clients.File, error) {
	one := clients.Find(how.Client)
	if one == nil {
		return clients.File{}, fmt.Errorf("there is no client %q", how.Client)
	}
	return one.File(system(), false)
}

// Entry returns a client's file with only toolfinch, and the command that writes the entry.
func (c connector) Entry(how page.Connection) (e page.Entry, err error) {
	file, err := c.file(how)
	if err != nil {
		return e, err
	}
	entry, err := c.entry(c.flags(how))
	if err != nil {
		return e, err
	}
	config := ""
	if entry.Command != "" {
		config = c.config
	}
	var said bytes.Buffer
	alone := &fileEdit{Edit: clients.Edit{File: file}}
	if err := alone.connect(&said, entry, config, false); err != nil {
		return e, forPage(err)
	}
	e.Text, e.Notes = string(alone.After), c.notes(&said, how)
	if file.Client.CanEdit() {
		e.Command = c.command(how)
	}
	return e, nil
}

func (c connector) command(how page.Connection) string {
	line := "toolfinch connect " + how.Client
	if how.HTTP {
		line += " --http " + c.url
	} else {
		line += fmt.Sprintf(" --config %q", c.config)
	}
	if how.View != "" {
		line += " --view " + how.View
	}
	return line
}

func (c connector) notes(said *bytes.Buffer, how page.Connection) (notes []string) {
	for line := range strings.Lines(said.String()) {
		notes = append(notes, strings.TrimSpace(line))
	}
	if how.HTTP && c.proof {
		notes = append(notes, "This toolfinch wants credentials: the client logs in by itself, or needs the header Authorization with an API key beside the URL.")
	}
	return notes
}

// forPage replaces an error that names flags by a text for the page.
func forPage(err error) error {
	if errors.Is(err, clients.ErrNoURL) {
		return errors.New("this client takes no URL in its file, only a command: let it start toolfinch serve")
	}
	return err
}
