package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
)

type setupFlags struct{ yes, dryRun, undo, withSecrets, disableFailed bool }

// setupPlan is the plan of setup, before anything is written. The check of the servers changes left; the plan is then
// made again.
type setupPlan struct {
	setupFlags
	before  []byte // of the configuration; nil without one
	files   []seenFile
	found   *table
	alone   []leftRow // clients that cannot be changed
	left    []leftServer
	config  clients.Edit
	rows    []importRow
	changes []*fileEdit
	kept    []leftRow // servers that stay in their client
	check   []string  // names of the servers to check
	problem bool      // something in the plan failed: the exit code says so
}

// leftServer is a server that does not work.
type leftServer struct {
	server clients.Server
	why    string
	login  bool // it only needs a login: the configuration gets it, and the client keeps it
}

// leftRow is a server that stays in a client, or a client that stays unchanged.
type leftRow struct{ client, server, why string }

// nothing reports whether the plan changes no file.
func (p *setupPlan) nothing() bool {
	return len(p.changes) == 0 && bytes.Equal(p.config.Before, p.config.After)
}

func (p *setupPlan) result() error {
	if p.problem {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// planSetup plans the files.
func (s *settings) planSetup(cmd *cobra.Command, chosen []*clients.Client, f setupFlags) (*setupPlan, error) {
	path, err := configs.OwnFile(s.config)
	if err != nil {
		return nil, err
	}
	if other := configs.FolderFile(); other != "" && !samePath(other, path) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s in this folder is left alone: setup changes %s; --config names another\n", filepath.Base(other), pretty(path))
	}
	for _, c := range chosen {
		for _, file := range c.Files(system()) {
			if samePath(file.Path, path) {
				return nil, &exitError{exitUsage, fmt.Errorf("%s is the file of %s itself, which setup is to change: name another configuration with --config", shown(path), c.Name)}
			}
		}
	}
	p := &setupPlan{setupFlags: f, config: clients.Edit{File: clients.File{Path: path}, Setup: true}, found: &table{head: []string{"CLIENT", "FILE", "SERVERS"}}}
	if p.files, err = p.look(cmd, chosen); err != nil {
		return nil, err
	}
	if p.before, err = p.config.File.Read(); err != nil {
		return nil, err
	}
	if p.before != nil {
		if err := clients.Writable(path); err != nil {
			return nil, err
		}
	}
	return p, p.plan(cmd, cmd.ErrOrStderr())
}

// plan plans the edits of the configuration and of the clients' files. It writes the configuration into a temporary
// folder, so that a dry run and a real run use the same code.
func (p *setupPlan) plan(cmd *cobra.Command, notes io.Writer) error {
	stage, err := os.MkdirTemp("", "toolfinch-setup-")
	if err != nil {
		return fmt.Errorf("a folder to work in: %w", err)
	}
	defer os.RemoveAll(stage)
	staged := filepath.Join(stage, filepath.Base(p.config.File.Path))
	p.changes, p.kept, p.check = nil, nil, nil
	if err := p.takeOver(staged); err != nil {
		return err
	}
	if p.config.After == nil {
		return nil // without a server no client is connected
	}
	return p.connect(notes, staged)
}

// planAgain makes the plan again after the check. It fails if a file has other servers than those that the user agreed to
// and that were checked. Other bytes may differ, because a running client writes its state into the same file.
func (p *setupPlan) planAgain(cmd *cobra.Command) error {
	changed := func(file clients.File) error {
		return fmt.Errorf("%s has changed meanwhile; nothing was written: run toolfinch setup again", file.Shown(system()))
	}
	for i, old := range p.files {
		file, err := readFile(old.File)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(file.servers, old.servers) {
			return changed(old.File)
		}
		p.files[i] = file
	}
	before, err := p.config.File.Read()
	if err != nil {
		return err
	}
	if !bytes.Equal(before, p.before) || (before == nil) != (p.before == nil) {
		return changed(p.config.File)
	}
	checked := p.check
	if err := p.plan(cmd, io.Discard); err != nil {
		return err
	}
	for _, name := range p.check {
		if !slices.Contains(checked, name) {
			return fmt.Errorf("server %q could not be moved before, and was not checked; nothing was written: run toolfinch setup again", name)
		}
	}
	return nil
}

// look reads the clients' user files. It skips a file that cannot be read or replaced, with a message.
func (p *setupPlan) look(cmd *cobra.Command, chosen []*clients.Client) ([]seenFile, error) {
	sys := system()
	var files []seenFile
	for _, c := range chosen {
		if !c.CanEdit() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is left alone: it %v; toolfinch import %s shows its servers\n", c.Name, clients.ErrNoEdit, c.ID)
			continue
		}
		main, err := c.File(sys, false)
		if err != nil {
			return nil, err
		}
		projects := 0
		for _, file := range c.Files(sys) {
			seen, err := readFile(file)
			if file.Project != "" {
				projects += len(seen.servers)
				continue
			}
			if err == nil {
				err = clients.Writable(file.Path)
			}
			if err != nil {
				p.leaveAlone(cmd.ErrOrStderr(), c, err)
				continue
			}
			if file.Exists() || file.Path == main.Path {
				files = append(files, seen)
				p.found.add(c.Name, file.Shown(sys), strconv.Itoa(len(seen.servers)))
			}
		}
		if projects > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of projects that %s has stay where they are: toolfinch import %s shows them\n", plural(projects, "server"), c.Name, c.ID)
		}
	}
	return files, nil
}

// takeOver imports the servers of the files into a copy of the configuration.
func (p *setupPlan) takeOver(staged string) error {
	p.config.Before, p.config.After = p.before, nil
	var ours []clients.Server
	if p.before != nil {
		// AddServer changes this mode if the file gets a secret. Chmod overrides the umask.
		err := errors.Join(os.WriteFile(staged, p.before, 0o644), os.Chmod(staged, 0o644))
		if err != nil {
			return fmt.Errorf("copy the configuration: %w", err)
		}
		if ours, err = configs.Servers(staged); err != nil {
			return editError(err)
		}
	}
	var found []foundServer
	for _, file := range p.files {
		found = append(found, file.found(system())...)
	}
	earlier := p.rows // of the same servers: planAgain has compared them
	p.rows = planImport(found, ours, filepath.Base(p.config.File.Path))
	for i := range p.rows {
		if earlier != nil && earlier[i].Status == "added" { // the check stored its lists under this name
			p.rows[i].keep = earlier[i].As
		}
		p.leaveOut(&p.rows[i])
	}
	if len(importRows(staged, ours, p.rows)) > 0 {
		p.problem = true
	}
	for _, row := range p.rows {
		if row.Status == "unusable" || row.Status == "failed" {
			p.problem = true
			p.kept = append(p.kept, leftRow{row.Client, row.Server, strings.TrimPrefix(row.Reason, fmt.Sprintf("server %q: ", row.Server))})
		}
	}
	after, err := clients.ReadFile(staged)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.config.After = after
	info, err := os.Stat(staged)
	p.config.Private = err == nil && info.Mode().Perm()&0o077 == 0
	return err
}

// leaveOut decides whether a new server is imported, although it does not work.
func (p *setupPlan) leaveOut(row *importRow) {
	if row.Status != "new" || row.server.Disabled {
		return
	}
	why := missingHere(row.server)
	if left := p.failed(row.server); left != nil && !left.login {
		why = left.why
	} else if why != "" && left == nil {
		p.left = append(p.left, leftServer{server: row.server, why: why})
	}
	switch {
	case why == "":
	case p.disableFailed:
		row.server.Disabled = true
	default:
		row.Status, row.As, row.Reason = "unusable", "", why
	}
}

// movable returns the servers that fail and can be moved disabled.
func (p *setupPlan) movable() (rows []leftRow) {
	for _, row := range p.rows {
		if left := p.failed(row.server); left != nil && !left.login && row.Status != "there" {
			rows = append(rows, leftRow{row.Client, row.Server, left.why})
		}
	}
	return rows
}

// failed returns why the server does not work; nil if it works, or was not checked.
func (p *setupPlan) failed(server clients.Server) *leftServer {
	i := slices.IndexFunc(p.left, func(l leftServer) bool { return sameServer(l.server, server) })
	if i < 0 {
		return nil
	}
	return &p.left[i]
}

// connect plans the edits of the clients' files. It prints to notes what stays in them.
func (p *setupPlan) connect(notes io.Writer, staged string) error {
	sys := system()
	ours, err := configs.Servers(staged)
	if err != nil {
		return editError(err)
	}
	entry, err := startEntry(p.config.File.Path)
	if err != nil {
		return err
	}
	for _, file := range p.files {
		c := &fileEdit{Edit: clients.Edit{File: file.File, Before: file.data, After: file.data, Setup: true}, path: file.Shown(sys), shown: file.data}
		// An existing entry stays unchanged, because it may name a view.
		connected := slices.ContainsFunc(file.servers, func(s clients.Server) bool {
			return s.Name == clients.Own && isToolfinch(s) && slices.Contains(s.Args, p.config.File.Path)
		})
		if main, err := file.Client.File(sys, false); err == nil && main.Path == file.Path && !connected {
			if err := c.connect(notes, entry, staged, p.withSecrets); err != nil {
				p.leaveAlone(notes, file.Client, err)
				continue
			}
		}
		for _, server := range file.servers {
			if !isOurs(server) {
				p.move(notes, c, server, ours)
			}
		}
		if !c.nothing() {
			p.changes = append(p.changes, c)
		}
	}
	return nil
}

// move plans to move a server out of the client's file, or to keep it there.
func (p *setupPlan) move(notes io.Writer, c *fileEdit, server clients.Server, ours []clients.Server) {
	client := c.File.Client
	at, differs := findSame(ours, server)
	if at < 0 {
		return
	}
	left := p.failed(server)
	disabled := left != nil && p.disableFailed && ours[at].Disabled
	switch {
	case left != nil && !disabled:
		p.kept = append(p.kept, leftRow{client.ID, server.Name, left.why})
		p.problem = true
		return
	case differs != "" && !disabled:
		why := fmt.Sprintf("it is server %q of %s, which has %s", ours[at].Name, filepath.Base(p.config.File.Path), differs)
		fmt.Fprintf(notes, "%s keeps server %q: %s\n", client.Name, server.Name, why)
		if !ours[at].Disabled {
			fmt.Fprintf(notes, "  through toolfinch it has those there, too; a view can limit them: toolfinch connect %s --view NAME\n", client.ID)
		}
		p.kept = append(p.kept, leftRow{client.ID, server.Name, why})
		p.problem = true
		return
	}
	if err := c.moveOut(server.Name); err != nil {
		fmt.Fprintf(notes, "%s keeps a server: %v\n", client.Name, err)
		p.kept = append(p.kept, leftRow{client.ID, server.Name, err.Error()})
		p.problem = true
		return
	}
	if name := ours[at].Name; !ours[at].Disabled && !slices.Contains(p.check, name) {
		p.check = append(p.check, name)
	}
}

// leaveAlone notes that a client is not changed.
func (p *setupPlan) leaveAlone(notes io.Writer, client *clients.Client, why error) {
	fmt.Fprintf(notes, "%s is left alone: %v\n", client.Name, why)
	if row := (leftRow{client.ID, "", why.Error()}); !slices.Contains(p.alone, row) { // the plan is made twice
		p.alone = append(p.alone, row)
	}
	p.problem = true
}

// print shows the plan, without secrets.
func (p *setupPlan) print(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	if err := p.found.print(out); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if len(p.rows) > 0 {
		if err := printImport(cmd, p.rows, p.config.File.Path, true, true); err != nil {
			return err
		}
	}
	for _, c := range p.changes {
		fmt.Fprintln(out)
		c.print(out)
	}
	if len(p.check) > 0 {
		fmt.Fprintf(out, "\nfirst started and listed once, and left in the client if that fails: %s\n", strings.Join(p.check, ", "))
	}
	return nil
}

// windowsPath is an absolute path of Windows.
var windowsPath = regexp.MustCompile(`^([A-Za-z]:[\\/]|\\\\)`)

// missingHere says what a server needs that this machine lacks; "" if nothing is known to be missing. It starts nothing.
func missingHere(s clients.Server) string {
	if runtime.GOOS != "windows" {
		for _, text := range append([]string{s.Command, s.Cwd}, s.Args...) {
			if windowsPath.MatchString(text) {
				return fmt.Sprintf("%s is a path of Windows", cut(text, 60))
			}
		}
	}
	_, path := s.Env["PATH"]
	if s.Command == "" || path || strings.Contains(s.Command, "${") || strings.HasPrefix(s.Command, "~") {
		return ""
	}
	if clients.IsRelativeCommand(s.Command) {
		return "" // from a folder that the import decides
	}
	if _, err := exec.LookPath(s.Command); err != nil {
		if strings.ContainsAny(s.Command, `/\`) {
			return fmt.Sprintf("its program %s is not there", s.Command)
		}
		return fmt.Sprintf("its program %s is not on PATH", s.Command)
	}
	return ""
}

// pretty returns a path for display, with ~ for the home folder.
func pretty(path string) string { return clients.File{Path: path}.Shown(system()) }
