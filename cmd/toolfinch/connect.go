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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/view"
)

type connectFlags struct {
	view, http                 string
	dryRun, undo, project, yes bool
	withSecrets, only          bool
}

func newConnect(s *settings) *cobra.Command {
	var f connectFlags
	cmd := &cobra.Command{
		Use:   "connect [CLIENT]",
		Short: "Write toolfinch into the configuration of an MCP client",
		Long: `Connect makes a client start toolfinch with the current configuration, or call a running
toolfinch with --http. It shows the change, asks, and keeps a copy of the old file.
--only moves the client's other servers out, so that the client does not list their
tools twice. --undo restores every byte; if the file was edited since, it only removes
what connect wrote and puts back what it moved. Without CLIENT, connect shows the
installed clients.

Clients start servers without most of your variables. So the entry names the variables
that the configuration uses, for the client to pass on. Their values are written only
with --with-secrets.

Clients: ` + strings.Join(clients.IDs(), ", "),
		Example: `  toolfinch connect
  toolfinch connect claude-code
  toolfinch connect cursor --view code --project
  toolfinch connect vscode --http http://127.0.0.1:8080/mcp --yes
  toolfinch connect cursor --only
  toolfinch connect cursor --undo`,
		ValidArgs: clients.IDs(),
		Args:      cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sys := system()
			if len(args) == 0 {
				return listClients(cmd, sys)
			}
			chosen, err := clientsByID(args)
			if err != nil {
				return err
			}
			file, err := chosen[0].File(sys, f.project)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if !chosen[0].CanEdit() {
				return &exitError{exitUsage, fmt.Errorf("%s %w", chosen[0].Name, clients.ErrNoEdit)}
			}
			if f.only && f.undo {
				return &exitError{exitUsage, errors.New("--undo brings back what --only moved: leave out --only")}
			}
			return s.connect(cmd, file, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.view, "view", "", "show the client this `VIEW`")
	flags.StringVar(&f.http, "http", "", "let the client call this `URL` instead of starting toolfinch")
	flags.BoolVar(&f.project, "project", false, "write the file of the project in the working directory, not the user's file")
	flags.BoolVar(&f.withSecrets, "with-secrets", false, "write the values of the configuration's variables into the client's file")
	flags.BoolVar(&f.only, "only", false, "move the client's other servers out of its file")
	flags.BoolVar(&f.undo, "undo", false, "remove what connect wrote, and put back what --only moved")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the change and write nothing")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	withJSON(cmd, "print the clients as one JSON object")
	return cmd
}

type fileEdit struct {
	clients.Edit
	path  string          // the path for display
	shown []byte          // After with the moved servers, whose lines may contain secrets
	lines []string        // further changes
	undo  *clients.Undone // only for an undo
}

// connect changes the client's file after the user has agreed.
func (s *settings) connect(cmd *cobra.Command, file clients.File, f connectFlags) error {
	c, err := s.planConnect(cmd.ErrOrStderr(), file, f)
	if err != nil {
		return err
	}
	out, name := cmd.OutOrStdout(), file.Client.Name
	if c.nothing() {
		state := "connected to toolfinch already"
		if f.undo {
			state = "not connected to toolfinch"
		}
		_, err := fmt.Fprintf(out, "%s is %s: %s\n", name, state, c.path)
		return err
	}
	c.print(out)
	if f.dryRun {
		return nil
	}
	if !f.yes {
		if err := agreed(cmd, "Write this?"); err != nil {
			return err
		}
	}
	done, err := c.done(f)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, done)
	return err
}

func (c *fileEdit) done(f connectFlags) (string, error) {
	copied, err := c.write()
	if err != nil {
		return "", err
	}
	if copied != "" {
		copied = ", as it was: " + clients.File{Path: copied}.Shown(system())
	}
	verb := "connected"
	if f.undo {
		verb = "disconnected"
		if servers, err := configs.ServersIn(c.File, c.After); err == nil && slices.ContainsFunc(servers, isOurs) {
			verb = "restored" // toolfinch's old entry, which connect had not written
		}
	}
	return fmt.Sprintf("%s %s (%s%s); restart it if it runs", verb, c.File.Client.Name, c.path, copied), nil
}

func (s *settings) planConnect(notes io.Writer, file clients.File, f connectFlags) (*fileEdit, error) {
	c := &fileEdit{Edit: clients.Edit{File: file}, path: file.Shown(system())}
	if f.undo {
		return c, c.planUndo()
	}
	entry, err := s.entry(f)
	if err != nil {
		return nil, err
	}
	config := ""
	if entry.Command != "" {
		config = entry.Args[slices.Index(entry.Args, "--config")+1]
	}
	if err := c.read(); err != nil {
		return nil, err
	}
	if err := c.connect(notes, entry, config, f.withSecrets); err != nil || !f.only {
		return c, err
	}
	servers, err := configs.ServersIn(file, c.Before)
	if err != nil {
		return nil, err
	}
	servers = slices.DeleteFunc(servers, isOurs)
	if config != "" {
		if err := warnOfLost(notes, file, servers, config); err != nil {
			return nil, err
		}
	}
	for _, server := range servers {
		if err := c.moveOut(server.Name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// read begins an edit: it reads the client's file.
func (c *fileEdit) read() error {
	before, err := c.File.Read()
	c.Before, c.After, c.shown = before, before, before
	return err
}

// connect adds the entry to the edit. With a configuration, the entry passes on the variables that it uses.
func (c *fileEdit) connect(notes io.Writer, entry clients.Entry, config string, values bool) error {
	if config != "" {
		if err := passOn(notes, c.File.Client, config, &entry, values); err != nil {
			return err
		}
	}
	after, err := c.File.Set(c.After, clients.Own, entry)
	if errors.Is(err, clients.ErrNoURL) {
		return &exitError{exitUsage, fmt.Errorf("%w: leave out --http", err)}
	}
	c.After, c.shown, c.Private = after, after, values
	return err
}

// moveOut adds the removal of a server to the edit.
func (c *fileEdit) moveOut(name string) error {
	after, err := c.File.Remove(c.After, name)
	if err != nil {
		return fmt.Errorf("server %q: %w", name, err)
	}
	c.After = after
	c.Moved = append(c.Moved, name)
	c.lines = append(c.lines, fmt.Sprintf("- server %q", name))
	return nil
}

// warnOfLost prints the servers that the configuration lacks or has with other settings.
func warnOfLost(notes io.Writer, file clients.File, servers []clients.Server, config string) error {
	ours, err := configs.Servers(config)
	if err != nil {
		return err
	}
	var found []foundServer
	for _, server := range servers {
		found = append(found, foundServer{file: file, server: server})
	}
	for _, row := range planImport(found, ours, filepath.Base(config)) {
		if row.Status == "new" {
			fmt.Fprintf(notes, "server %q is not in %s; to keep its tools, first: toolfinch import %s --server %q\n",
				row.Server, filepath.Base(config), row.Client, row.Server)
		}
		if row.differs != "" {
			fmt.Fprintf(notes, "server %q is server %q of %s, which has %s\n", row.Server, row.As, filepath.Base(config), row.differs)
		}
	}
	return nil
}

func (c *fileEdit) planUndo() error {
	b, err := backups()
	if err != nil {
		return err
	}
	u, err := b.Undo(c.File)
	if err != nil {
		return err
	}
	c.undo, c.Edit, c.shown = &u, u.Edit, u.After
	for _, name := range u.Back {
		c.lines = append(c.lines, fmt.Sprintf("+ server %q", name))
	}
	if len(u.Back) > 0 { // the lines of restored servers must not be shown
		c.shown, err = c.File.Remove(u.Before, clients.Own)
	}
	return err
}

func (c *fileEdit) nothing() bool {
	return bytes.Equal(c.Before, c.After) && (c.Before == nil) == (c.After == nil)
}

// print shows the edit, without secrets.
func (c *fileEdit) print(out io.Writer) {
	if c.After == nil {
		fmt.Fprintf(out, "%s is removed: there was none\n", c.path)
		return
	}
	// Values are hidden before lines are shortened, because shortening may cut a value.
	before, shown := hideValues(c.Before, c.File, c.Before, c.shown), hideValues(c.shown, c.File, c.Before, c.shown)
	switch {
	case bytes.Equal(c.Before, c.shown):
		fmt.Fprintln(out, c.path)
	case bytes.Equal(before, shown):
		fmt.Fprintf(out, "%s: only values that are not shown\n", c.path)
	default:
		fmt.Fprint(out, preview(c.path, before, shown))
	}
	for _, line := range c.lines {
		fmt.Fprintln(out, line)
	}
	if c.undo != nil && c.undo.Exact {
		fmt.Fprintln(out, "every byte is as it was then")
	}
}

// write makes the edit. It returns the path of the backup; "" for none.
func (c *fileEdit) write() (copied string, err error) {
	b, err := backups()
	if err != nil {
		return "", err
	}
	if c.undo != nil {
		return b.Restore(*c.undo, time.Now())
	}
	return b.Write(c.Edit, time.Now())
}

func backups() (clients.Backups, error) {
	dir, err := configs.UserDataDir()
	if err != nil {
		return clients.Backups{}, fmt.Errorf("no place to keep the file as it is: %w", err)
	}
	return clients.Backups{Dir: filepath.Join(dir, "undo")}, nil
}

// entry returns the entry for toolfinch in the client's file.
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
	views, err := configs.ViewNames(config) // fails for a missing or broken file
	if err != nil {
		return clients.Entry{}, editError(err)
	}
	entry, err := startEntry(config)
	if err != nil {
		return entry, err
	}
	if f.view != "" {
		if views = append(views, view.Default); !slices.Contains(views, f.view) {
			return clients.Entry{}, &exitError{exitUsage, fmt.Errorf("%s has no view %q; there are: %s", filepath.Base(config), f.view, strings.Join(views, ", "))}
		}
		entry.Args = append(entry.Args, "--view", f.view)
	}
	return entry, nil
}

// isOurs reports whether a client's server has the name that connect writes.
func isOurs(s clients.Server) bool { return s.Name == clients.Own }

// startEntry returns an entry that starts this program with the configuration.
func startEntry(config string) (clients.Entry, error) {
	program, err := os.Executable()
	if err != nil {
		return clients.Entry{}, fmt.Errorf("this program's own path: %w", err)
	}
	// On Linux os.Executable resolves symbolic links: the path may name the folder of one version, which an upgrade
	// removes.
	if named, err := exec.LookPath(os.Args[0]); err == nil && samePath(named, program) {
		if named, err = filepath.Abs(named); err == nil {
			program = named
		}
	}
	return clients.Entry{Command: program, Args: []string{"serve", "--config", config}}, nil
}

// passOn makes the client pass on the variables that the configuration uses. It prints to notes the variables that the
// client cannot pass on.
func passOn(notes io.Writer, c *clients.Client, config string, entry *clients.Entry, values bool) error {
	used, unset, err := configs.Variables(config)
	if err != nil {
		return err
	}
	var lost []string
	for _, name := range used {
		value := os.Getenv(name)
		switch {
		case slices.Contains(clients.Given, strings.ToUpper(name)):
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
		fmt.Fprintf(notes, "%s not set here; %s passes on the variables of its own environment\n", isOrAre(unset), c.Name)
	default:
		fmt.Fprintf(notes, "%s not set here, and so not passed on: set them and connect again\n", isOrAre(unset))
	}
	return nil
}

// agreed asks the user, and returns nil if he agrees.
func agreed(cmd *cobra.Command, question string) error {
	yes, err := ask(cmd, question)
	if err == nil && !yes {
		err = &exitError{exitFailed, errors.New("nothing was written")}
	}
	return err
}

// ask asks a question at the terminal. It fails without a terminal, and without an answer: after an interrupt, or at the
// end of input.
func ask(cmd *cobra.Command, question string) (bool, error) {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return false, &exitError{exitUsage, errors.New("nothing was written: this is no terminal to ask at; --yes agrees")}
	}
	fmt.Fprint(cmd.OutOrStdout(), question+" [y/N] ")
	return answer(cmd.Context(), in)
}

// errNoAnswer says that the input ended before an answer.
var errNoAnswer = &exitError{exitFailed, errors.New("nothing was written: the input ended before an answer")}

// answer reads yes or no. The error is the cause of ctx's end, or errNoAnswer.
func answer(ctx context.Context, in io.Reader) (bool, error) {
	line := make(chan string, 1)
	// A read from a terminal cannot be stopped: it ends with the program.
	go func() {
		text, _ := bufio.NewReader(in).ReadString('\n') // a failed read counts as the end of input
		line <- text
	}()
	var text string
	select {
	case text = <-line:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // also if a line came at the same time
		return false, context.Cause(ctx)
	}
	if text == "" {
		return false, errNoAnswer
	}
	text = strings.ToLower(strings.TrimSpace(text))
	return text == "y" || text == "yes", nil
}

type clientRow struct {
	Client    string `json:"client"`
	Name      string `json:"name"`
	File      string `json:"file"`
	Found     bool   `json:"found"`
	Connected bool   `json:"connected"`
	Problem   string `json:"problem,omitempty"`
}

// clientRows returns the known clients, with their state on this machine.
func clientRows(sys clients.System) (rows []clientRow, err error) {
	for _, c := range clients.All {
		file, err := c.File(sys, false)
		if err != nil {
			return nil, err
		}
		row := clientRow{Client: c.ID, Name: c.Name, File: file.Shown(sys), Found: c.Installed(sys)}
		data, err := file.Read()
		var servers []clients.Server
		if err == nil {
			servers, err = configs.ServersIn(file, data)
		}
		if err != nil {
			row.Problem = err.Error()
		}
		row.Connected = slices.ContainsFunc(servers, isOurs)
		rows = append(rows, row)
	}
	return rows, nil
}

// listClients prints the known clients, with their state on this machine.
func listClients(cmd *cobra.Command, sys clients.System) error {
	rows, err := clientRows(sys)
	if err != nil {
		return err
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
	return show(cmd, map[string]any{"clients": rows}, t, "")
}
