package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/embed"
	"toolfinch/embed/models"
)

type setupFlags struct{ yes, dryRun, undo, withSecrets bool }

func newSetup(s *settings) *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:   "setup [CLIENT]...",
		Short: "Connect your MCP clients and their servers through toolfinch, in one step",
		Long: `Setup finds the MCP clients on this machine, imports their servers into the
configuration, connects each client to toolfinch, and moves the servers out of the
clients' files, so that no tool is listed twice. It shows the plan and asks first. Then
it lists the servers' tools, and offers to download the model for search by meaning.

These servers stay in the client's file: a server that cannot be imported, one that the
configuration disables or gives other tools, and servers of projects (toolfinch import
shows them). Without a configuration, setup writes one for the user, which toolfinch
finds from every folder. --undo restores every byte of every file.

Clients: ` + strings.Join(clients.IDs(), ", "),
		Example: `  toolfinch setup
  toolfinch setup --dry-run
  toolfinch setup cursor claude-code --yes
  toolfinch setup --undo`,
		ValidArgs: clients.IDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.undo {
				if len(args) > 0 {
					return &exitError{exitUsage, errors.New("--undo undoes all of setup: for one client there is toolfinch connect CLIENT --undo")}
				}
				return undoSetup(cmd, f)
			}
			chosen, err := clientsByID(args)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				sys := system()
				chosen = slices.DeleteFunc(slices.Clone(chosen), func(c *clients.Client) bool { return !c.Installed(sys) })
			}
			return s.setup(cmd, chosen, f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask, and download nothing")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show what would be done and write nothing")
	flags.BoolVar(&f.undo, "undo", false, "restore every file that setup has changed")
	flags.BoolVar(&f.withSecrets, "with-secrets", false, "write the values of the configuration's variables into the clients' files")
	return cmd
}

// setupPlan is the plan of setup, before anything is written.
type setupPlan struct {
	config  clients.Edit
	rows    []importRow
	changes []*fileEdit
	found   *table
	problem bool // something in the plan failed: the exit code says so
}

func (s *settings) setup(cmd *cobra.Command, chosen []*clients.Client, f setupFlags) error {
	if len(chosen) == 0 {
		return fmt.Errorf("no MCP client was found; known: %s. To try toolfinch without one: toolfinch demo", strings.Join(clients.IDs(), ", "))
	}
	p, err := s.planSetup(cmd, chosen, f)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if err := p.print(cmd); err != nil {
		return err
	}
	if len(p.changes) == 0 && bytes.Equal(p.config.Before, p.config.After) {
		fmt.Fprintln(out, "\nnothing is left to set up")
		return p.result()
	}
	if f.dryRun {
		return p.result()
	}
	if !f.yes {
		if err := agreed(cmd, "\nDo this?"); err != nil {
			return err
		}
	}
	if err := p.write(cmd); err != nil {
		return err
	}
	fmt.Fprint(out, "\nto undo it: toolfinch setup --undo\n\n")
	here := *s
	here.config = p.config.File.Path
	if err := here.reindex(cmd, nil, false); err != nil {
		if coded, ok := errors.AsType[*exitError](err); !ok || coded.err != nil {
			return err
		}
		p.problem = true
		fmt.Fprintln(cmd.ErrOrStderr(), "servers that failed are tried again whenever toolfinch runs; toolfinch servers says why")
	}
	if err := here.offerModel(cmd, f.yes); err != nil {
		return err
	}
	return p.result()
}

func (p *setupPlan) result() error {
	if p.problem {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// planSetup plans the files. It writes the configuration into a temporary folder, so that a dry run and a real run use
// the same code.
func (s *settings) planSetup(cmd *cobra.Command, chosen []*clients.Client, f setupFlags) (*setupPlan, error) {
	path, err := s.editedFile(false)
	if errors.Is(err, configs.ErrNoConfig) {
		path, err = configs.UserFile()
	}
	if err != nil {
		return nil, err
	}
	for _, c := range chosen {
		for _, file := range c.Files(system()) {
			if samePath(file.Path, path) {
				return nil, &exitError{exitUsage, fmt.Errorf("%s is the file of %s itself, which setup is to change: name another configuration with --config", shown(path), c.Name)}
			}
		}
	}
	p := &setupPlan{config: clients.Edit{File: clients.File{Path: path}, Setup: true}, found: &table{head: []string{"CLIENT", "FILE", "SERVERS"}}}
	stage, err := os.MkdirTemp("", "toolfinch-setup-")
	if err != nil {
		return nil, fmt.Errorf("a folder to work in: %w", err)
	}
	defer os.RemoveAll(stage)
	staged := filepath.Join(stage, filepath.Base(path))
	files, err := p.look(cmd, chosen)
	if err != nil {
		return nil, err
	}
	if err := p.takeOver(cmd, files, staged); err != nil {
		return nil, err
	}
	return p, p.connect(cmd, files, staged, f)
}

// look reads the clients' user files. It skips a file that cannot be read or replaced, with a message.
func (p *setupPlan) look(cmd *cobra.Command, chosen []*clients.Client) ([]clients.File, error) {
	sys := system()
	var files []clients.File
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
			data, err := file.Read()
			var servers []clients.Server
			if err == nil {
				servers, err = configs.ServersIn(file, data)
			}
			if file.Project != "" {
				projects += len(servers)
				continue
			}
			if err == nil {
				err = clients.Writable(file.Path)
			}
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is left alone: %v\n", c.Name, err)
				p.problem = true
				continue
			}
			if file.Exists() || file.Path == main.Path {
				files = append(files, file)
				p.found.add(c.Name, file.Shown(sys), strconv.Itoa(len(servers)))
			}
		}
		if projects > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of projects that %s has stay where they are: toolfinch import %s shows them\n", plural(projects, "server"), c.Name, c.ID)
		}
	}
	return files, nil
}

// takeOver imports the servers of the files into a copy of the configuration.
func (p *setupPlan) takeOver(cmd *cobra.Command, files []clients.File, staged string) error {
	before, err := p.config.File.Read()
	if err != nil {
		return err
	}
	p.config.Before = before
	var ours []clients.Server
	if before != nil {
		if err := clients.Writable(p.config.File.Path); err != nil {
			return err
		}
		// AddServer changes this mode if the file gets a secret. Chmod overrides the umask.
		if err := errors.Join(os.WriteFile(staged, before, 0o644), os.Chmod(staged, 0o644)); err != nil {
			return fmt.Errorf("copy the configuration: %w", err)
		}
		if ours, err = configs.Servers(staged); err != nil {
			return editError(err)
		}
	}
	found, _ := findServers(files, system()) // errors of unreadable files were printed before
	p.rows = planImport(found, ours, filepath.Base(p.config.File.Path))
	failed := importRows(staged, ours, p.rows)
	p.problem = p.problem || len(failed) > 0
	p.config.After, err = clients.ReadFile(staged)
	if errors.Is(err, fs.ErrNotExist) {
		return &exitError{exitFailed, errors.New("no server was found that could be taken over; add one with toolfinch servers add, then run toolfinch setup again")}
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(staged)
	p.config.Private = err == nil && info.Mode().Perm()&0o077 == 0
	return err
}

func (p *setupPlan) connect(cmd *cobra.Command, files []clients.File, staged string, f setupFlags) error {
	sys := system()
	ours, err := configs.Servers(staged)
	if err != nil {
		return editError(err)
	}
	entry, err := startEntry(p.config.File.Path)
	if err != nil {
		return err
	}
	for _, file := range files {
		c := &fileEdit{Edit: clients.Edit{File: file, Setup: true}, path: file.Shown(sys)}
		if err := c.read(); err != nil {
			return err
		}
		servers, err := configs.ServersIn(file, c.Before)
		if err != nil {
			return err
		}
		// An existing entry stays unchanged, because it may name a view.
		connected := slices.ContainsFunc(servers, func(s clients.Server) bool {
			return s.Name == clients.Own && isToolfinch(s) && slices.Contains(s.Args, p.config.File.Path)
		})
		if main, err := file.Client.File(sys, false); err == nil && main.Path == file.Path && !connected {
			if err := c.connect(cmd.ErrOrStderr(), entry, staged, f.withSecrets); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is left alone: %v\n", file.Client.Name, err)
				p.problem = true
				continue
			}
		}
		for _, server := range servers {
			at, differs := findSame(ours, server)
			if at < 0 || isOurs(server) {
				continue
			}
			if differs != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s keeps server %q: it is server %q of %s, which has %s\n",
					file.Client.Name, server.Name, ours[at].Name, filepath.Base(p.config.File.Path), differs)
				if !ours[at].Disabled {
					fmt.Fprintf(cmd.ErrOrStderr(), "  through toolfinch it has those there, too; a view can limit them: toolfinch connect %s --view NAME\n", file.Client.ID)
				}
				p.problem = true
				continue
			}
			if err := c.moveOut(server.Name); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s keeps a server: %v\n", file.Client.Name, err)
				p.problem = true
			}
		}
		if !c.nothing() {
			p.changes = append(p.changes, c)
		}
	}
	return nil
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
	return nil
}

// write makes the changes. It writes the configuration first, because without it a client would lose its tools.
func (p *setupPlan) write(cmd *cobra.Command) error {
	b, err := backups()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintln(out)
	if !bytes.Equal(p.config.Before, p.config.After) {
		if _, err := b.Write(p.config, time.Now()); err != nil {
			return err
		}
		fmt.Fprintf(out, "wrote %s\n", shown(p.config.File.Path))
	}
	for _, c := range p.changes {
		if _, err := c.write(); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is left alone: %v\n", c.File.Client.Name, err)
			p.problem = true
			continue
		}
		fmt.Fprintf(out, "connected %s (%s); restart it if it runs\n", c.File.Client.Name, c.path)
	}
	return nil
}

func (s *settings) offerModel(cmd *cobra.Command, yes bool) error {
	config, err := s.read(cmd, nil)
	if err != nil {
		return err
	}
	name := config.Embed.HFModel
	if config.Embed.Kind != embed.KindAuto && config.Embed.Kind != embed.KindHF {
		return nil
	}
	if _, err := models.Locate(name); err == nil {
		return nil
	}
	if !yes {
		// Setup has asked at this terminal before.
		agreed, err := ask(cmd, fmt.Sprintf("\nDownload the model %s, so that search finds tools by meaning, too?", name))
		if err != nil {
			return err
		}
		if agreed {
			return s.pull(cmd, models.FromHub, []string{name})
		}
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "\nsearch goes by words; to search by meaning, too: toolfinch model pull")
	return err
}

// undoSetup restores the files that setup has changed, the clients' files first.
func undoSetup(cmd *cobra.Command, f setupFlags) error {
	b, err := backups()
	if err != nil {
		return err
	}
	paths, broken := b.Setup()
	if broken != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), broken)
	}
	out := cmd.OutOrStdout()
	if len(paths) == 0 && broken == nil {
		_, err := fmt.Fprintln(out, "there is nothing to undo")
		return err
	}
	changes, failed := planUndoSetup(cmd.ErrOrStderr(), paths)
	failed = failed || broken != nil
	for _, c := range changes {
		c.print(out)
	}
	if len(changes) > 0 && !f.dryRun && !f.yes {
		if err := agreed(cmd, "Write this?"); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if f.dryRun {
			continue
		}
		if _, err := c.write(); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is left as it is: %v\n", c.path, err)
			failed = true
			continue
		}
		verb := "restored"
		if c.After == nil {
			verb = "removed"
		}
		fmt.Fprintf(out, "%s %s\n", verb, c.path)
	}
	if failed {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// planUndoSetup plans the undo, the clients' files first. It prints to notes which files cannot be restored.
func planUndoSetup(notes io.Writer, paths []string) (changes []*fileEdit, failed bool) {
	sys := system()
	var others []*fileEdit
	for _, path := range paths {
		file := clientFile(path, sys)
		c := &fileEdit{Edit: clients.Edit{File: file}, path: file.Shown(sys)}
		err := c.planUndo()
		switch {
		case err != nil:
			fmt.Fprintf(notes, "%s is left as it is: %v\n", c.path, err)
			failed = true
		case file.Client == nil:
			c.shown = c.Before // hides the change, because it may contain secrets
			others = append(others, c)
		default:
			changes = append(changes, c)
		}
	}
	return append(changes, others...), failed
}

// clientFile returns the client's user file at the path, or else a file without a client.
func clientFile(path string, sys clients.System) clients.File {
	for _, c := range clients.All {
		for _, f := range c.Files(sys) {
			if f.Path == path && f.Project == "" {
				return f
			}
		}
	}
	return clients.File{Path: path}
}
