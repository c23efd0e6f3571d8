package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
)

func newSetup(s *settings) *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:         "setup [CLIENT]...",
		Annotations: map[string]string{whenInterrupted: "toolfinch setup --undo undoes what is done"},
		Short:       "Connect your MCP clients and their servers through toolfinch, in one step",
		Long: `Setup finds the MCP clients on this machine, shows its plan and asks. Then it starts and
lists each of their servers once. A server that works moves into your configuration; one
that fails stays in its client. Each client gets toolfinch instead of what moved.

Setup changes your own configuration, which toolfinch finds from every folder, or the
one named by --config. Servers of projects stay (toolfinch import shows them), and so
does a server that the configuration disables or gives other tools. --undo restores
every byte of every file.

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
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the plan; start and write nothing")
	flags.BoolVar(&f.undo, "undo", false, "restore every file that setup has changed")
	flags.BoolVar(&f.withSecrets, "with-secrets", false, "write the values of the configuration's variables into the clients' files")
	flags.BoolVar(&f.disableFailed, "disable-failed", false, "also move servers that fail, and disable them")
	return cmd
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
	if p.nothing() {
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
	defer func() { clients.RemoveFolders(p.config.Made) }() // the folders stay if the configuration was written
	checked, err := s.checkServers(cmd, p)
	if err != nil {
		return err
	}
	if failed := p.movable(); len(failed) > 0 && !f.yes && !f.disableFailed {
		for _, row := range failed {
			fmt.Fprintf(out, "%s failed: %s\n", row.server, row.why)
		}
		p.disableFailed, err = ask(cmd, plural(len(failed), "server")+" will stay in the client. Move all the same, disabled?")
		if err != nil {
			return err
		}
	}
	if err := p.planAgain(cmd); err != nil {
		return err
	}
	if err := p.write(cmd); err != nil {
		return err
	}
	if err := p.summarize(out, checked); err != nil {
		return err
	}
	return p.result()
}

// write makes the changes. It writes the configuration first, because without it a client would lose its tools.
func (p *setupPlan) write(cmd *cobra.Command) error {
	if p.nothing() || p.config.After == nil {
		return nil
	}
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
		if err := configs.KeepTrust(p.config.File.Path, p.config.Before, p.config.After); err != nil {
			return err
		}
		fmt.Fprintf(out, "wrote %s\n", pretty(p.config.File.Path))
	}
	var done []*fileEdit
	for _, c := range p.changes {
		if _, err := c.write(); err != nil {
			p.leaveAlone(cmd.ErrOrStderr(), c.File.Client, err)
			continue
		}
		fmt.Fprintf(out, "wrote %s\n", c.path)
		done = append(done, c)
	}
	p.changes = done
	return nil
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
		if c.File.Client == nil {
			noteShared(cmd.Context(), out, c.File.Path, c.path)
		}
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

// noteShared prints how to end the toolfinches in the background of a configuration. toolfinch stop needs its file.
func noteShared(ctx context.Context, out io.Writer, path, shown string) {
	at, err := configs.FindPlaces(configs.Options{Path: path})
	if err != nil {
		return // a broken file: nothing is known of its processes
	}
	mine, _ := askLive(ctx, at.DataDir, path)
	for _, one := range mine {
		if one.Shared {
			fmt.Fprintf(out, "process %d runs with %s until its last agent has left; to end it now, first: toolfinch stop --config %s\n", one.PID, shown, shown)
		}
	}
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
