package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"toolfinch/clients"
	"toolfinch/configs"
	"toolfinch/trust/inbound"
	"toolfinch/web/page"
)

// connector is connect for the page of a toolfinch that serves HTTP.
type connector struct {
	*settings
	url   string // where clients call it
	proof bool   // it wants credentials
}

// newConnector is the connector of what serves a configuration at an address.
func newConnector(config *configs.Config, at net.Addr) connector {
	host, port, _ := net.SplitHostPort(at.String())
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		host = "127.0.0.1" // the files are of this machine's clients
	}
	return connector{&settings{config: config.Path}, cmp.Or(config.Auth.Resource, "http://"+net.JoinHostPort(host, port)+"/mcp"), config.Auth.Mode == inbound.Proof}
}

func (c connector) flags(how page.Connection) connectFlags {
	f := connectFlags{view: how.View, only: how.Only, undo: how.Undo}
	if how.HTTP {
		f.http = c.url
	}
	return f
}

// Clients are those that connect knows, the ones that are here first.
func (c connector) Clients() (all []page.Client) {
	rows, err := clientRows(system())
	if err != nil {
		return nil // there is no home directory
	}
	for _, r := range rows {
		all = append(all, page.Client{ID: r.Client, Name: r.Name, File: r.File, Found: r.Found, Connected: r.Connected, Problem: r.Problem, CanEdit: clients.Find(r.Client).CanEdit()})
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

// Views are those of the configuration.
func (c connector) Views() []string {
	names, _ := configs.ViewNames(c.config) // a file that is being edited has none
	return names
}

func (c connector) file(how page.Connection) (clients.File, error) {
	one := clients.Find(how.Client)
	if one == nil {
		return clients.File{}, fmt.Errorf("there is no client %q", how.Client)
	}
	return one.File(system(), false)
}

// Entry is a client's file that has toolfinch alone.
func (c connector) Entry(how page.Connection) (text string, notes []string, err error) {
	file, err := c.file(how)
	if err != nil {
		return "", nil, err
	}
	f := c.flags(how)
	entry, err := c.entry(f)
	if err != nil {
		return "", nil, err
	}
	config := ""
	if entry.Command != "" {
		config = c.config
	}
	var said bytes.Buffer
	alone := &change{Edit: clients.Edit{File: file}}
	if err := alone.connect(&said, entry, config, false); err != nil {
		return "", nil, forPage(err)
	}
	return string(alone.After), c.notes(&said, how), nil
}

// notes are what connect says beside.
func (c connector) notes(said *bytes.Buffer, how page.Connection) (notes []string) {
	for line := range strings.Lines(said.String()) {
		notes = append(notes, strings.TrimSpace(line))
	}
	if how.HTTP && c.proof {
		notes = append(notes, "This toolfinch wants credentials: the client logs in by itself, or needs the header Authorization with an API key beside the URL.")
	}
	return notes
}

// plan is a change with what to show of it.
func (c connector) plan(how page.Connection) (*change, page.Edit, error) {
	file, err := c.file(how)
	if err == nil && !file.Client.CanEdit() {
		err = fmt.Errorf("%s %w", file.Client.Name, clients.ErrNoEdit)
	}
	if err != nil {
		return nil, page.Edit{}, err
	}
	var said, shown bytes.Buffer
	made, err := c.planConnect(&said, file, c.flags(how))
	if err != nil {
		return nil, page.Edit{}, forPage(err)
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(made.File.Path), made.Before, made.After} {
		fmt.Fprintf(sum, "%d %t ", len(part), part == nil)
		sum.Write(part)
	}
	e := page.Edit{Nothing: made.nothing(), Digest: hex.EncodeToString(sum.Sum(nil))}
	if how.Undo {
		said.Reset()
	}
	for line := range strings.Lines(said.String()) {
		e.Notes = append(e.Notes, strings.TrimSpace(line))
	}
	made.print(&shown)
	for line := range strings.Lines(shown.String()) {
		line = strings.TrimSuffix(line, "\n")
		sign, text := "", line
		for _, one := range []string{"+", "-"} {
			if rest, ok := strings.CutPrefix(line, one+" "); ok {
				sign, text = one, rest
			}
		}
		e.Lines = append(e.Lines, page.EditLine{Sign: sign, Text: text})
	}
	return made, e, nil
}

// Plan says what would be changed.
func (c connector) Plan(how page.Connection) (page.Edit, error) {
	_, e, err := c.plan(how)
	return e, err
}

// Connect makes the change that a plan with the digest has shown.
func (c connector) Connect(_ context.Context, how page.Connection, digest string) (string, error) {
	made, e, err := c.plan(how)
	switch {
	case err != nil:
		return "", err
	case e.Digest != digest:
		return "", errors.New("something has changed since this was shown: look at it once more")
	}
	return made.done(c.flags(how))
}

// forPage is an error without what a command line says of flags.
func forPage(err error) error {
	if errors.Is(err, clients.ErrNoURL) {
		return errors.New("this client takes no URL in its file, only a command: let it start a toolfinch of its own")
	}
	return err
}
