package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/clients"
)

func newImport(s *settings) *cobra.Command {
	var all, dryRun bool
	var names []string
	cmd := &cobra.Command{
		Use:   "import [CLIENT | FILE]...",
		Short: "Show the servers of other MCP clients, and import them",
		Long: `Import shows the servers that other MCP clients on this machine have. With --all or
--server it writes them into the configuration. It skips servers that are configured
already; a server with a taken name gets another name. It does not change the clients'
files. Without a configuration it creates your own, which is found from every folder. It
names keys that it does not import. FILE is a file in any of these formats; write ./FILE if a client has the
same name.

Clients: ` + strings.Join(clients.IDs(), ", "),
		Example: `  toolfinch import
  toolfinch import cursor --all
  toolfinch import ./team/mcp.json --all
  toolfinch import --server github --server notion --dry-run`,
		ValidArgs: clients.IDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := filesOf(args, system())
			if err != nil {
				return err
			}
			if all && len(names) > 0 {
				return &exitError{exitUsage, errors.New("--all takes every server: leave out --server")}
			}
			path, err := s.editedFile(true)
			if err != nil {
				return err
			}
			ours, err := configs.Servers(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // a missing file will be made
				return editError(err)
			}
			found, broken := findServers(from, system())
			if err := refuseUnknown(names, found); err != nil {
				return err
			}
			rows := planImport(choose(found, names), ours, filepath.Base(path))
			for _, err := range broken {
				fmt.Fprintln(cmd.ErrOrStderr(), "toolfinch:", err)
			}
			chosen := all || len(names) > 0
			if chosen && !dryRun {
				broken = append(broken, importRows(path, ours, rows)...)
			} else {
				failed, err := tryImport(path, ours, rows)
				if err != nil {
					return err
				}
				if chosen {
					broken = append(broken, failed...)
				}
			}
			if asJSON(cmd) {
				errs := make([]string, len(broken))
				for i, err := range broken {
					errs[i] = err.Error()
				}
				err = printJSON(cmd.OutOrStdout(), struct {
					Servers []importRow `json:"servers"`
					Errors  []string    `json:"errors"`
				}{rows, errs})
			} else {
				err = printImport(cmd, rows, path, chosen, dryRun)
			}
			if err == nil && len(broken) > 0 {
				return &exitError{exitFailed, nil}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "import every new server")
	flags.StringArrayVar(&names, "server", nil, "import the server of this `NAME`; may be repeated")
	flags.BoolVar(&dryRun, "dry-run", false, "write nothing")
	withJSON(cmd, "print one JSON object")
	return cmd
}

// system describes this machine and the working directory.
func system() clients.System {
	dir, _ := os.Getwd() // without a working directory no project file is found
	return clients.System{GOOS: runtime.GOOS, Env: os.LookupEnv, Dir: dir}
}

func clientsByID(ids []string) ([]*clients.Client, error) {
	if len(ids) == 0 {
		return clients.All, nil
	}
	var chosen []*clients.Client
	for _, id := range ids {
		c := clients.Find(id)
		if c == nil {
			return nil, &exitError{exitUsage, fmt.Errorf("unknown client %q; known: %s", id, strings.Join(clients.IDs(), ", "))}
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// filesOf returns the files that args name, by client ID or path. Without args it returns the files of all clients.
func filesOf(args []string, sys clients.System) ([]clients.File, error) {
	var files []clients.File
	var ids []string
	for _, arg := range args {
		if clients.Find(arg) != nil || !strings.ContainsAny(arg, `./\`) {
			ids = append(ids, arg)
			continue
		}
		found, err := configs.ClientFiles(arg, sys)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		files = append(files, found...)
	}
	if len(files) > 0 && len(ids) == 0 {
		return files, nil
	}
	chosen, err := clientsByID(ids)
	for _, c := range chosen {
		files = append(files, c.Files(sys)...)
	}
	return files, err
}

type foundServer struct {
	file   clients.File
	shown  string // the file's path
	server clients.Server
}

// findServers reads clients' files. An unreadable file adds an error to the second result; the other files are still
// read.
func findServers(files []clients.File, sys clients.System) ([]foundServer, []error) {
	var found []foundServer
	var broken []error
	told := map[string]bool{} // paths with an error: files may share a path
	for _, f := range files {
		seen, err := readFile(f)
		if err != nil {
			if !told[f.Path] {
				broken = append(broken, fmt.Errorf("%s: %w", f.Client.Name, err))
			}
			told[f.Path] = true
			continue
		}
		found = append(found, seen.found(sys)...)
	}
	return found, broken
}

// seenFile is a client's file as it was read. Without the file, data is nil.
type seenFile struct {
	clients.File
	data    []byte
	servers []clients.Server
}

func readFile(file clients.File) (seen seenFile, err error) {
	seen.File = file
	if seen.data, err = file.Read(); err == nil && seen.data != nil {
		seen.servers, err = configs.ServersIn(file, seen.data)
	}
	return seen, err
}

func (f seenFile) found(sys clients.System) (found []foundServer) {
	for _, server := range f.servers {
		found = append(found, foundServer{f.File, f.Shown(sys), server})
	}
	return found
}

type importRow struct {
	Client  string   `json:"client"`
	File    string   `json:"file"`
	Project string   `json:"project,omitempty"`
	Server  string   `json:"server"`
	Command []string `json:"command,omitempty"` // with arguments; likely secrets are ***
	URL     string   `json:"url,omitempty"`     // likely secrets are ***
	Env     []string `json:"env,omitempty"`     // names only
	Headers []string `json:"headers,omitempty"` // names only
	Enabled bool     `json:"enabled"`
	// Status is "new", "there" (already in the configuration), "self" (toolfinch itself), "unusable",
	// or after an import "added" or "failed".
	Status string `json:"status"`
	As     string `json:"as,omitempty"` // name in the configuration
	Reason string `json:"reason,omitempty"`
	// NotTaken are the server's keys that are not imported. Mended says how values of other
	// forms are read.
	NotTaken []string `json:"not_taken,omitempty"`
	Mended   []string `json:"mended,omitempty"`

	server  clients.Server
	keep    string // the name that an earlier plan gave to the server; "" for none
	differs string // for status "there": how the configured server differs; "" if it does not
}

func planImport(found []foundServer, ours []clients.Server, config string) []importRow {
	known := slices.Clone(ours)
	rows := make([]importRow, 0, len(found))
	for _, f := range enabledFirst(found) {
		s := f.server
		row := importRow{
			Client: f.file.Client.ID, File: f.shown, Project: f.file.Project, Server: s.Name, Enabled: !s.Disabled,
			Env: slices.Sorted(maps.Keys(s.Env)), Headers: slices.Sorted(maps.Keys(s.Headers)), NotTaken: s.NotTaken, Mended: s.Mended, server: s,
		}
		row.Command, row.URL = configs.Shown(s)
		at, differs := findSame(known, s)
		switch {
		case s.Problem != "":
			row.Status, row.Reason = "unusable", s.Problem
		case isToolfinch(s):
			row.Status, row.Reason = "self", "it is toolfinch"
		case at >= 0:
			row.Status, row.As, row.Reason, row.differs = "there", known[at].Name, "in "+config, differs
			if known[at].Name != s.Name {
				row.Reason += " as " + known[at].Name
			}
			if at >= len(ours) {
				row.Reason = "same as above"
			}
			if differs != "" {
				row.Reason += ", which has " + differs
			}
		default:
			row.Status, row.As = "new", freeName(s, known)
			row.server.Name, row.server.Legal = row.As, cmp.Or(s.Legal, s.Name)
			known = append(known, row.server)
		}
		rows = append(rows, row)
	}
	return rows
}

// enabledFirst puts a disabled server last if a client has an equal enabled server: the first of equal servers is
// imported.
func enabledFirst(found []foundServer) []foundServer {
	var first, last []foundServer
	for _, f := range found {
		if f.server.Disabled && slices.ContainsFunc(found, func(other foundServer) bool {
			return !other.server.Disabled && other.server.Problem == "" && sameServer(other.server, f.server)
		}) {
			last = append(last, f)
		} else {
			first = append(first, f)
		}
	}
	return append(first, last...)
}

// findSame returns the index of the equal server in known, the one of its name first; -1 for none. differs says how the
// known server differs in what does not make another server of it; "" if it does not.
func findSame(known []clients.Server, s clients.Server) (at int, differs string) {
	at = -1
	for _, named := range []bool{true, false} {
		for i, k := range known {
			if sameName(k, s) != named || !sameServer(k, s) {
				continue
			}
			why := differing(k, s)
			if why == "" {
				return i, ""
			}
			if at < 0 {
				at, differs = i, why
			}
		}
	}
	return at, differs
}

// differing says how the known server k differs from an equal server.
func differing(k, s clients.Server) string {
	if k.Disabled && !s.Disabled {
		return "it disabled"
	}
	if has, wants := clients.ChoiceInWords(k.Tools), clients.ChoiceInWords(s.Tools); has != wants {
		return fmt.Sprintf("another choice of tools: %s there, %s here", has, wants)
	}
	for _, key := range [][3]string{{"transport", k.Transport, s.Transport}, {"connect_timeout", k.ConnectTimeout, s.ConnectTimeout}, {"call_timeout", k.CallTimeout, s.CallTimeout}} {
		if key[1] != key[2] && key[2] != "" {
			return fmt.Sprintf("another %s: %s there, %s here", key[0], cmp.Or(key[1], "none"), key[2])
		}
	}
	return ""
}

// sameServer reports whether two entries of different files are one server. A program is one under any name, unless its
// file has it under two; a URL is not, because each server has a login of its own.
func sameServer(a, b clients.Server) bool {
	return a.Same(b) && (sameName(a, b) || a.URL == "" && !a.Twin && !b.Twin)
}

// sameName reports whether two servers have one name, to which an import may have added a number.
func sameName(a, b clients.Server) bool {
	name := func(s clients.Server) string { return strings.ToLower(cmp.Or(s.Legal, s.Name)) }
	numbered := func(a, b clients.Server) bool {
		rest, is := strings.CutPrefix(name(a), name(b)+"-")
		return a.Configured && is && rest != "" && strings.Trim(rest, "0123456789") == ""
	}
	return name(a) == name(b) || numbered(a, b) || numbered(b, a)
}

// isToolfinch reports whether a server is this program.
func isToolfinch(s clients.Server) bool {
	base := strings.TrimSuffix(strings.ToLower(filepath.Base(s.Command)), ".exe")
	if own, err := os.Executable(); err == nil && s.Command != "" && samePath(s.Command, own) {
		base = "toolfinch"
	}
	return base == "toolfinch" && slices.Contains(s.Args, "serve")
}

// freeName returns the legal name of a server. If it is taken, it adds the first free number.
func freeName(s clients.Server, taken []clients.Server) string {
	name := cmp.Or(s.Legal, s.Name)
	free := name
	for n := 2; slices.ContainsFunc(taken, func(other clients.Server) bool { return other.Name == free }); n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	return free
}

// refuseUnknown refuses names that no client has.
func refuseUnknown(names []string, found []foundServer) error {
	var there []string
	for _, f := range found {
		there = append(there, f.server.Name)
	}
	for _, name := range names {
		switch {
		case slices.Contains(there, name):
		case len(there) == 0:
			return &exitError{exitUsage, fmt.Errorf("no client has a server %q, nor any other", name)}
		default:
			return &exitError{exitUsage, fmt.Errorf("no client has a server %q; there are: %s", name, strings.Join(unique(there), ", "))}
		}
	}
	return nil
}

// choose returns the named servers; all servers if there are no names.
func choose(found []foundServer, names []string) []foundServer {
	if len(names) == 0 {
		return found
	}
	return slices.DeleteFunc(found, func(f foundServer) bool { return !slices.Contains(names, f.server.Name) })
}

// tryImport marks the new servers that importRows would fail to write. It writes them into a copy of the configuration.
func tryImport(path string, ours []clients.Server, rows []importRow) ([]error, error) {
	stage, err := os.MkdirTemp("", "toolfinch-import-")
	if err != nil {
		return nil, fmt.Errorf("a folder to work in: %w", err)
	}
	defer os.RemoveAll(stage)
	staged := filepath.Join(stage, filepath.Base(path))
	data, err := clients.File{Path: path}.Read()
	if data != nil {
		err = os.WriteFile(staged, data, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the configuration: %w", err)
	}
	failed := importRows(staged, ours, rows)
	for i := range rows {
		if rows[i].Status == "added" {
			rows[i].Status = "new"
		}
	}
	return failed, nil
}

// importRows writes the new servers into the configuration, and marks each as added or failed. A later server may get
// the name of a failed server, unless a row keeps it.
func importRows(path string, ours []clients.Server, rows []importRow) []error {
	known := slices.Clone(ours)
	for _, row := range rows {
		if row.keep != "" {
			known = append(known, clients.Server{Name: row.keep})
		}
	}
	var failed []error
	for i := range rows {
		row := &rows[i]
		if row.Status != "new" {
			continue
		}
		if row.As = row.keep; row.As == "" {
			row.As = freeName(row.server, known)
		}
		row.server.Name = row.As
		if err := configs.AddServer(path, row.server); err != nil {
			if fresh, ok := errors.AsType[configs.Errors](err); ok {
				err = fresh // drops "nothing was written"
			}
			row.Status, row.Reason = "failed", strings.ReplaceAll(err.Error(), "\n", "; ")
			failed = append(failed, fmt.Errorf("server %q of %s: %w", row.Server, row.Client, err))
			continue
		}
		row.Status = "added"
		known = append(known, row.server)
	}
	return failed
}

func printImport(cmd *cobra.Command, rows []importRow, path string, chosen, dryRun bool) error {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if len(rows) == 0 {
		fmt.Fprintln(notes, "no servers of other clients were found")
		return nil
	}
	if !chosen {
		t := table{head: []string{"CLIENT", "FILE", "SERVER", "STATUS", "COMMAND OR URL"}}
		for _, row := range rows {
			t.add(row.Client, row.File, row.Server, cmp.Or(row.Reason, row.Status), strings.Join(row.Command, " ")+row.URL)
		}
		err := t.print(out)
		if err == nil && slices.ContainsFunc(rows, func(r importRow) bool { return r.Status == "new" }) {
			fmt.Fprintln(notes, "\nTo take them over: toolfinch import --all, or --server NAME")
		}
		return err
	}
	secrets := false
	for _, row := range rows {
		as := ""
		if row.As != row.Server {
			as = fmt.Sprintf(" as %q", row.As)
		}
		switch row.Status {
		case "added", "new":
			verb := "added"
			if dryRun {
				verb = "would add"
			}
			fmt.Fprintf(out, "%s server %q of %s%s to %s\n", verb, row.Server, row.Client, as, shown(path))
			if len(row.NotTaken) > 0 {
				fmt.Fprintf(out, "  without what means nothing to toolfinch: %s\n", strings.Join(row.NotTaken, ", "))
			}
			for _, text := range row.Mended {
				fmt.Fprintf(out, "  %s\n", text)
			}
			secrets = secrets || len(row.Env)+len(row.Headers) > 0
		case "failed":
			fmt.Fprintf(notes, "server %q of %s was not added: %s\n", row.Server, row.Client, row.Reason)
		default:
			fmt.Fprintf(out, "left out server %q of %s: %s\n", row.Server, row.Client, row.Reason)
		}
	}
	if secrets {
		fmt.Fprintf(notes, "values of env and headers are copied as they are, secrets included; write ${NAME} in %s to read one from the environment. With secrets in it, only you may read the file\n", shown(path))
	}
	return nil
}
