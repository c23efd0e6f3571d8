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
	twin   bool // its file has an equal server with another name
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
		found = append(found, foundServer{f.File, f.Shown(sys), server, f.hasTwin(server)})
	}
	return found
}

// hasTwin reports whether the file has an equal server with another name. They are two servers: one may have another
// login or state.
func (f seenFile) hasTwin(server clients.Server) bool {
	return slices.ContainsFunc(f.servers, func(s clients.Server) bool { return s.Name != server.Name && s.Same(server) })
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
	known, named := slices.Clone(ours), slices.Clone(ours) // named has them under the names of the configuration
	others := make([]string, len(found))
	for i, f := range found {
		others[i] = f.server.Name
	}
	rows := make([]importRow, 0, len(found))
	for _, f := range enabledFirst(found) {
		s := f.server
		row := importRow{
			Client: f.file.Client.ID, File: f.shown, Project: f.file.Project, Server: s.Name, Enabled: !s.Disabled,
			Env: slices.Sorted(maps.Keys(s.Env)), Headers: slices.Sorted(maps.Keys(s.Headers)), NotTaken: s.NotTaken, Mended: s.Mended, server: s,
		}
		row.Command, row.URL = configs.Shown(s)
		at, differs := findSame(known, s, f.twin)
		switch {
		case s.Problem != "":
			row.Status, row.Reason = "unusable", s.Problem
		case isToolfinch(s):
			row.Status, row.Reason = "self", "it is toolfinch"
		case at >= 0:
			row.Status, row.As, row.Reason, row.differs = "there", named[at].Name, "in "+config, differs
			if named[at].Name != s.Name {
				row.Reason += " as " + named[at].Name
			}
			if at >= len(ours) {
				row.Reason = "same as above"
			}
			if differs != "" {
				row.Reason += ", which has " + differs
			}
		default:
			row.Status, row.As = "new", freeName(s.Name, named, others)
			row.server.Name = row.As
			known, named = append(known, s), append(named, row.server)
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

// findSame returns the index of the equal server in known; -1 for none. differs says how the known server differs in
// what it does not depend on which server it is; "" if it does not.
func findSame(known []clients.Server, s clients.Server, twin bool) (at int, differs string) {
	at = -1
	order := make([]int, len(known))
	for i := range known {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { // the one of its name first
		return cmp.Compare(map[bool]int{false: 1}[sameName(known[i], s)], map[bool]int{false: 1}[sameName(known[j], s)])
	})
	for _, i := range order {
		k := known[i]
		if !sameServer(k, s) || twin && !sameName(k, s) {
			continue
		}
		why := ""
		if has, wants := clients.ChoiceInWords(k.Tools), clients.ChoiceInWords(s.Tools); has != wants {
			why = fmt.Sprintf("another choice of tools: %s there, %s here", has, wants)
		}
		for name, has := range map[string][2]string{"transport": {k.Transport, s.Transport}, "connect_timeout": {k.ConnectTimeout, s.ConnectTimeout}, "call_timeout": {k.CallTimeout, s.CallTimeout}} {
			if has[0] != has[1] && has[1] != "" {
				why = fmt.Sprintf("another %s: %s there, %s here", name, cmp.Or(has[0], "none"), has[1])
			}
		}
		if k.Disabled && !s.Disabled {
			why = "it disabled"
		}
		if why == "" {
			return i, ""
		}
		if at < 0 {
			at, differs = i, why
		}
	}
	return at, differs
}

// sameServer reports whether two entries of different files are one server. One program is, under any name; a URL is not,
// because each server has a login of its own.
func sameServer(a, b clients.Server) bool { return a.Same(b) && (a.URL == "" || sameName(a, b)) }

// sameName reports whether two servers have one name, to which an import may have added a number.
func sameName(a, b clients.Server) bool {
	x, y := strings.ToLower(configs.LegalName(a.Name)), strings.ToLower(configs.LegalName(b.Name))
	numbered := func(s clients.Server, a, b string) bool {
		rest, is := strings.CutPrefix(a, b+"-")
		return s.Configured && is && rest != "" && strings.Trim(rest, "0123456789") == ""
	}
	return x == y || numbered(a, x, y) || numbered(b, y, x)
}

// isToolfinch reports whether a server is this program.
func isToolfinch(s clients.Server) bool {
	base := strings.TrimSuffix(strings.ToLower(filepath.Base(s.Command)), ".exe")
	if own, err := os.Executable(); err == nil && s.Command != "" && samePath(s.Command, own) {
		base = "toolfinch"
	}
	return base == "toolfinch" && slices.Contains(s.Args, "serve")
}

// freeName returns the name, made legal. If it is taken, it adds the first free number. A name that was made legal also
// leaves the others theirs.
func freeName(name string, taken []clients.Server, others []string) string {
	legal := configs.LegalName(name)
	free := legal
	for n := 2; legal != name && slices.Contains(others, free) || slices.ContainsFunc(taken, func(s clients.Server) bool { return s.Name == free }); n++ {
		free = fmt.Sprintf("%s-%d", legal, n)
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
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(staged, data, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	var others []string
	for _, row := range rows {
		others = append(others, row.Server)
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
			row.As = freeName(row.Server, known, others)
		}
		row.server.Name = row.As
		if err := configs.AddServer(path, row.server); err != nil {
			if fresh, ok := errors.AsType[configs.Errors](err); ok {
				err = fresh // drops "nothing was written"
			}
			row.Status, row.Reason = "failed", err.Error()
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
			t.add(row.Client, row.File, row.Server, cmp.Or(strings.ReplaceAll(row.Reason, "\n", "; "), row.Status), strings.Join(row.Command, " ")+row.URL)
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
			fmt.Fprintf(notes, "server %q of %s was not added: %s\n", row.Server, row.Client, strings.ReplaceAll(row.Reason, "\n", "; "))
		default:
			fmt.Fprintf(out, "left out server %q of %s: %s\n", row.Server, row.Client, strings.ReplaceAll(row.Reason, "\n", "; "))
		}
	}
	if secrets {
		fmt.Fprintf(notes, "values of env and headers are copied as they are, secrets included; write ${NAME} in %s to read one from the environment. With secrets in it, only you may read the file\n", shown(path))
	}
	return nil
}
