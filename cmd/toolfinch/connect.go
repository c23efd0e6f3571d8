package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"toolfinch/clients"
	"toolfinch/configs"
	"toolfinch/rawjson"
	"toolfinch/view"
)

// connectName is what clients call the server that connect writes.
const connectName = "toolfinch"

// connectFlags are what connect is asked for.
type connectFlags struct {
	view, http                 string
	dryRun, undo, project, yes bool
	withSecrets, asJSON        bool
}

func newConnect(s *settings) *cobra.Command {
	var f connectFlags
	cmd := &cobra.Command{
		Use:   "connect [CLIENT]",
		Short: "Write toolfinch into the configuration of an MCP client",
		Long: `Connect makes a client start toolfinch, with the configuration in use here, or call
the URL of one that runs. It shows what it would change and asks; the file as it
was is kept beside it. With --undo it takes out again what it wrote, and nothing
else. Without CLIENT it shows which clients are here.

Clients start servers without most of your variables. So the client is told to pass on
those that the configuration uses, in its own notation; their values are written only
with --with-secrets.

Clients: ` + strings.Join(clients.IDs(), ", "),
		Example: `  toolfinch connect
  toolfinch connect claude-code
  toolfinch connect cursor --view code --project
  toolfinch connect vscode --http http://127.0.0.1:8080/mcp --yes
  toolfinch connect cursor --undo`,
		ValidArgs: clients.IDs(),
		Args:      cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sys := system()
			if len(args) == 0 {
				return listClients(cmd, sys, f.asJSON)
			}
			chosen, err := clientsByID(args)
			if err != nil {
				return err
			}
			file, err := chosen[0].File(sys, f.project)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return s.connect(cmd, file, file.Shown(sys), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.view, "view", "", "show the client this `VIEW`")
	flags.StringVar(&f.http, "http", "", "let the client call this `URL` instead of starting toolfinch")
	flags.BoolVar(&f.project, "project", false, "for the project in the working directory, not for all of the user's")
	flags.BoolVar(&f.withSecrets, "with-secrets", false, "write the values of the configuration's variables into the client's file")
	flags.BoolVar(&f.undo, "undo", false, "take out what connect wrote")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the change and write nothing")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.asJSON, "json", false, "print the clients as one JSON object")
	return cmd
}

// connect changes the client's file, once the user has agreed.
func (s *settings) connect(cmd *cobra.Command, file clients.File, place string, f connectFlags) error {
	before, err := file.Read()
	if err != nil {
		return err
	}
	after, err := s.connected(cmd, file, before, f)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	name := file.Client.Name
	if bytes.Equal(before, after) {
		state := "connected to toolfinch already"
		if f.undo {
			state = "not connected to toolfinch"
		}
		_, err := fmt.Fprintf(out, "%s is %s: %s\n", name, state, place)
		return err
	}
	fmt.Fprint(out, hideValues(preview(place, before, after), file, before, after))
	if f.dryRun {
		return nil
	}
	if !f.yes {
		agreed, err := ask(cmd, "Write this?")
		if err != nil {
			return err
		}
		if !agreed {
			return &exitError{exitFailed, errors.New("nothing was written")}
		}
	}
	backup := ""
	if before != nil {
		path, err := clients.Backup(file.Path, before, time.Now())
		if err != nil {
			return err
		}
		backup = ", as it was: " + filepath.Base(path)
	}
	write := clients.Replace
	if f.withSecrets && !f.undo {
		write = clients.ReplacePrivate
	}
	if err := write(file.Path, before, after); err != nil {
		return err
	}
	verb := "connected"
	if f.undo {
		verb = "disconnected"
	}
	_, err = fmt.Fprintf(out, "%s %s (%s%s); restart it if it runs\n", verb, name, place, backup)
	return err
}

// connected is what the file is to be.
func (s *settings) connected(cmd *cobra.Command, file clients.File, before []byte, f connectFlags) ([]byte, error) {
	if f.undo {
		return file.Remove(before, connectName)
	}
	entry, err := s.entry(f)
	if err != nil {
		return nil, err
	}
	if entry.Command != "" {
		config := entry.Args[slices.Index(entry.Args, "--config")+1]
		if err := passOn(cmd.ErrOrStderr(), file.Client, config, &entry, f.withSecrets); err != nil {
			return nil, err
		}
	}
	after, err := file.Set(before, connectName, entry)
	if errors.Is(err, clients.ErrNoURL) {
		err = &exitError{exitUsage, fmt.Errorf("%w: leave out --http", err)}
	}
	return after, err
}

// entry is how the client gets to toolfinch.
func (s *settings) entry(f connectFlags) (clients.Entry, error) {
	if f.http != "" {
		u, err := url.Parse(f.http)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return clients.Entry{}, &exitError{exitUsage, errors.New("--http must be an http or https URL, like http://127.0.0.1:8080/mcp")}
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = "/mcp"
		}
		if f.view != "" {
			u = u.JoinPath(f.view)
		}
		return clients.Entry{URL: u.String()}, nil
	}
	config, err := configs.Find(configs.Options{Path: s.config})
	if err != nil {
		return clients.Entry{}, err
	}
	views, err := configs.ViewNames(config) // a file that is not there or broken is found now
	if err != nil {
		return clients.Entry{}, editError(err)
	}
	program, err := os.Executable()
	if err != nil {
		return clients.Entry{}, fmt.Errorf("this program's own path: %w", err)
	}
	args := []string{"serve", "--config", config}
	if f.view != "" {
		if views = append(views, view.Default); !slices.Contains(views, f.view) {
			return clients.Entry{}, &exitError{exitUsage, fmt.Errorf("%s has no view %q; there are: %s", filepath.Base(config), f.view, strings.Join(views, ", "))}
		}
		args = append(args, "--view", f.view)
	}
	return clients.Entry{Command: program, Args: args}, nil
}

// passOn makes the client pass on the variables that the configuration uses, and says
// on notes which ones it cannot.
func passOn(notes io.Writer, c *clients.Client, config string, entry *clients.Entry, values bool) error {
	used, unset, err := configs.Variables(config)
	if err != nil {
		return err
	}
	var lost []string
	for _, name := range used {
		value := os.Getenv(name)
		switch {
		case values && c.CanHold(value):
			if entry.Values == nil {
				entry.Values = map[string]string{}
			}
			entry.Values[name] = value
		case c.Passing() == clients.PassNone:
			lost = append(lost, name)
		default:
			entry.Pass = append(entry.Pass, name)
		}
	}
	if len(lost) > 0 {
		fmt.Fprintf(notes, "the file of %s cannot name variables to pass on: where %s does not have %s, use --with-secrets or write the values into %s\n",
			c.Name, c.Name, strings.Join(lost, ", "), filepath.Base(config))
	}
	switch {
	case len(unset) == 0:
	case c.Passing() == clients.PassAny:
		entry.Pass = append(entry.Pass, unset...)
		slices.Sort(entry.Pass)
		fmt.Fprintf(notes, "%s not set here; %s passes on what is set where it runs\n", isOrAre(unset), c.Name)
	default:
		fmt.Fprintf(notes, "%s not set here, and so not passed on: set what is missing and connect again\n", isOrAre(unset))
	}
	return nil
}

// hideValues hides what our entry has under env, before and after an edit.
func hideValues(text string, file clients.File, contents ...[]byte) string {
	for _, data := range contents {
		servers, err := file.Servers(data)
		if err != nil {
			continue // nothing of it is shown: it is an error before
		}
		for _, s := range servers {
			for name, value := range s.Env {
				if s.Name == connectName && !strings.Contains(value, "${"+name) && !strings.Contains(value, "${env:"+name) {
					value = strings.ReplaceAll(value, "$${", "${")
					text = strings.ReplaceAll(text, string(rawjson.Quote(value)), `"***"`)
				}
			}
		}
	}
	return text
}

// ask asks a question at the terminal. Without one nobody can answer.
func ask(cmd *cobra.Command, question string) (bool, error) {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return false, &exitError{exitUsage, errors.New("nothing was written: this is no terminal to ask at; --yes agrees")}
	}
	fmt.Fprint(cmd.OutOrStdout(), question+" [y/N] ")
	return answer(cmd.Context(), in), nil
}

// answer reads a line that says yes or not; an interrupt is no yes.
func answer(ctx context.Context, in io.Reader) bool {
	line := make(chan string, 1)
	// A read of a terminal cannot be stopped: when ctx ends first, the program does
	// and takes this along.
	go func() {
		text, _ := bufio.NewReader(in).ReadString('\n') // no answer is none
		line <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-line:
		return text == "y" || text == "yes"
	case <-ctx.Done():
		return false
	}
}

// preview shows what changes in a file: the lines that go and the lines that
// come. Edits are in one place, so what is the same around it is left out.
func preview(place string, before, after []byte) string {
	was, is := linesOf(before), linesOf(after)
	same, end := common(was, is)
	var b strings.Builder
	if before == nil {
		fmt.Fprintf(&b, "%s (new)\n", place)
	} else {
		fmt.Fprintf(&b, "%s, line %d\n", place, same+1)
	}
	gone, come := was[same:len(was)-end], is[same:len(is)-end]
	if len(gone) == 1 && len(come) == 1 {
		gone[0], come[0] = shortened(gone[0], come[0])
	}
	for _, line := range gone {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range come {
		b.WriteString("+ " + line + "\n")
	}
	return b.String()
}

// shortened leaves out what two long lines have in common: a whole file may be
// one line, with the keys of other servers in it.
func shortened(a, b string) (string, string) {
	const long = 120
	x, y := []rune(a), []rune(b)
	if min(len(x), len(y)) <= long {
		return a, b
	}
	same, end := common(x, y)
	return "…" + string(x[same:len(x)-end]) + "…", "…" + string(y[same:len(y)-end]) + "…"
}

// common is how much two lists share at their beginning, and of the rest at their end.
func common[T comparable](a, b []T) (same, end int) {
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for end < min(len(a), len(b))-same && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	return same, end
}

func linesOf(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"), "\n")
}

// clientRow is a client as it is listed.
type clientRow struct {
	Client    string `json:"client"`
	Name      string `json:"name"`
	File      string `json:"file"`
	Found     bool   `json:"found"`
	Connected bool   `json:"connected"`
	Problem   string `json:"problem,omitempty"`
}

// listClients prints which clients are here, and which have toolfinch.
func listClients(cmd *cobra.Command, sys clients.System, asJSON bool) error {
	var rows []clientRow
	for _, c := range clients.All {
		file, err := c.File(sys, false)
		if err != nil {
			return err
		}
		row := clientRow{Client: c.ID, Name: c.Name, File: file.Shown(sys), Found: c.Installed(sys)}
		data, err := file.Read()
		var servers []clients.Server
		if err == nil {
			servers, err = file.Servers(data)
		}
		if err != nil {
			row.Problem = err.Error()
		}
		row.Connected = slices.ContainsFunc(servers, func(s clients.Server) bool { return s.Name == connectName })
		rows = append(rows, row)
	}
	t := &table{head: []string{"CLIENT", "NAME", "FILE", "STATE"}}
	for _, row := range rows {
		state := "not found"
		switch {
		case row.Problem != "":
			state = row.Problem
		case row.Connected:
			state = "connected"
		case row.Found:
			state = "found"
		}
		t.add(row.Client, row.Name, row.File, state)
	}
	return show(cmd, asJSON, map[string]any{"clients": rows}, t, "")
}
