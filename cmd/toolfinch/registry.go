package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/configs/registry"
	"toolfinch/internal/rawjson"
)

// registryVariable is the environment variable for the URL of another registry.
const registryVariable = "MCPPROXY_REGISTRY"

// registryTime bounds a command's requests to a registry, with retries.
const registryTime = time.Minute

type registryFlags struct {
	at, version, kind, as string
	set                   []string
	limit                 int
}

func newRegistry() *cobra.Command {
	var f registryFlags
	cmd := &cobra.Command{
		Use:   "registry {TEXT | NAME}",
		Short: "Find servers in the MCP registry",
		Long: `Registry finds servers in the MCP registry, or another registry with its API. TEXT lists
the latest version of the servers whose names contain it; the official registry searches
only names, and needs at least 3 characters. NAME, the whole name with its slash, shows
one server and what toolfinch server add NAME would write.

Anyone can publish there: only the publisher vouches for a server, and a server runs with
your rights.`,
		Example: `  toolfinch registry filesystem
  toolfinch registry github --limit 100 --json
  toolfinch registry io.github.modelcontextprotocol/filesystem --package oci`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 1 || f.limit > 1000 {
				return &exitError{exitUsage, errors.New("--limit must be from 1 to 1000")}
			}
			return f.ask(cmd, func(ctx context.Context, r *registry.Registry) error {
				if strings.Contains(args[0], "/") {
					l, err := listingOf(ctx, r, args[0], f.version)
					if err != nil {
						return err
					}
					return f.show(cmd, l)
				}
				found, err := r.Search(ctx, args[0], f.limit)
				if err != nil {
					return err
				}
				return printFound(cmd, found)
			})
		},
	}
	f.asking(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 30, "servers to list at most")
	withJSON(cmd, "print one JSON object")
	return cmd
}

// addFromRegistry adds a server of the registry to the configuration.
func (s *settings) addFromRegistry(cmd *cobra.Command, f *registryFlags, name string) error {
	return f.ask(cmd, func(ctx context.Context, r *registry.Registry) error {
		l, err := listingOf(ctx, r, name, f.version)
		if err != nil {
			return err
		}
		return s.addListing(cmd, f, l)
	})
}

// ofRegistry are the flags that adding adds.
var ofRegistry = []string{"registry", "version", "package", "as", "set"}

// adding adds the flags of a server of the registry that is added.
func (f *registryFlags) adding(cmd *cobra.Command) {
	f.asking(cmd)
	cmd.Flags().StringVar(&f.as, "as", "", "the `NAME` in the configuration of a server of the registry (default: the last part of its name there)")
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "a value that a server of the registry needs, `NAME=VALUE`; may be repeated")
}

// asking adds the flags that choose a registry, a version and a package.
func (f *registryFlags) asking(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.at, "registry", "", "the `URL` of the registry (default: $"+registryVariable+", "+registry.Official+")")
	cmd.Flags().StringVar(&f.version, "version", "", "this `VERSION` of the server (default: the latest)")
	cmd.Flags().StringVar(&f.kind, "package", "", "npm, pypi, oci, nuget, remote, or the name of a package")
}

// ask asks the registry in use.
func (f *registryFlags) ask(cmd *cobra.Command, do func(context.Context, *registry.Registry) error) error {
	r, err := registry.New(cmp.Or(f.at, os.Getenv(registryVariable), registry.Official))
	if err != nil {
		return &exitError{exitUsage, err}
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), registryTime, fmt.Errorf("the registry has not answered within %s", registryTime))
	defer cancel()
	return do(ctx, r)
}

// listingOf returns a server of the registry. An unknown name causes exitUsage.
func listingOf(ctx context.Context, r *registry.Registry, name, version string) (registry.Listing, error) {
	l, err := r.Show(ctx, name, version)
	if unknown, ok := errors.AsType[*registry.UnknownError](err); ok {
		err = &exitError{exitUsage, unknown}
	}
	return l, err
}

type foundRow struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	Kinds       []string `json:"kinds"`
	Status      string   `json:"status,omitempty"`
	Description string   `json:"description"`
}

func printFound(cmd *cobra.Command, found registry.Found) error {
	rows := []foundRow{}
	t := &table{head: []string{"NAME", "VERSION", "KINDS", "DESCRIPTION"}}
	for _, l := range found.Listings {
		rows = append(rows, foundRow{l.Name, l.Version, l.Kinds(), l.Status, l.Description})
		about := l.Description
		if l.Status != "" && l.Status != "active" {
			about = strings.ToUpper(l.Status) + ": " + about
		}
		t.add(l.Name, l.Version, cmp.Or(strings.Join(l.Kinds(), " "), "-"), about)
	}
	notes := cmd.ErrOrStderr()
	if found.Unreadable > 0 {
		verb := "is"
		if found.Unreadable > 1 {
			verb = "are"
		}
		fmt.Fprintf(notes, "%s cannot be read and %s left out\n", plural(found.Unreadable, "server"), verb)
	}
	err := show(cmd, map[string]any{"servers": rows, "more": found.More}, t, "no server has that in its name; registries look at names only: try one word of it")
	if err == nil && found.More && !asJSON(cmd) {
		fmt.Fprintf(notes, "there are more: --limit, or a longer text\n")
	}
	return err
}

// offer is one way to run or reach a server.
type offer struct {
	Package string   `json:"package"`
	Runs    []string `json:"command,omitempty"`
	URL     string   `json:"url,omitempty"`
	// Env and Headers are the variables and headers to write, with *** for given values.
	Env     map[string]string `json:"env,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Needs   []registry.Need   `json:"needs,omitempty"`
	Notes   []string          `json:"notes,omitempty"`
	Problem string            `json:"problem,omitempty"` // why toolfinch cannot use this way

	way  registry.Way
	plan registry.Plan
}

// offers returns the ways of a listing that the flags allow.
func (f *registryFlags) offers(l registry.Listing) (all []offer, err error) {
	for _, way := range l.Ways {
		if f.kind != "" && f.kind != way.Kind && f.kind != way.At {
			continue
		}
		o, err := f.offer(l, way, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	if len(all) > 0 {
		return all, nil
	}
	switch kinds := l.Kinds(); {
	case len(kinds) > 0:
		return nil, &exitError{exitUsage, fmt.Errorf("%s has no package %q; it has %s", l.Name, f.kind, strings.Join(kinds, ", "))}
	case l.Website != "":
		return nil, fmt.Errorf("the registry has neither package nor URL of %s; its publisher points to %s", l.Name, l.Website)
	}
	return nil, fmt.Errorf("the registry has neither package nor URL of %s", l.Name)
}

// offer plans one way of a listing with the given values.
func (f *registryFlags) offer(l registry.Listing, way registry.Way, given map[string][]string) (offer, error) {
	o := offer{Package: way.Kind, way: way}
	var err error
	o.plan, err = way.Plan(cmp.Or(f.as, ownName(l.Name)), l.Description, given)
	if problem, ok := errors.AsType[*registry.Unsupported](err); ok {
		o.Problem = problem.Reason
	} else if err != nil {
		return o, &exitError{exitUsage, err}
	} else {
		o.shown()
	}
	o.Needs, o.Notes = o.plan.Needs, o.plan.Notes
	return o, nil
}

// shown fills in the printed fields. It never masks a publisher's values, because they are public and the user must
// see them.
func (o *offer) shown() {
	server, given := o.plan.Server, o.plan.Given
	o.Runs, o.URL = configs.Shown(server)
	for i, word := range slices.Concat([]string{server.Command}, server.Args)[:len(o.Runs)] {
		_, value, _ := strings.Cut(word, "=")
		switch masked, ok := given[word]; {
		case ok && (server.Secret || o.Runs[i] != word):
			o.Runs[i] = masked
		case ok:
		case given[value] == "":
			o.Runs[i] = word
		case server.Secret || o.Runs[i] != word:
			o.Runs[i] = strings.TrimSuffix(word, value) + given[value]
		}
	}
	if _, ok := given[server.URL]; !ok {
		o.URL = server.URL
	} else if server.Secret {
		o.URL = given[server.URL]
	}
	masked := func(pairs map[string]string) map[string]string {
		pairs = maps.Clone(pairs)
		for name, value := range pairs {
			pairs[name] = cmp.Or(given[value], value)
		}
		return pairs
	}
	o.Env, o.Headers = masked(server.Env), masked(server.Headers)
}

var (
	bareWord   = regexp.MustCompile(`^([\w@%+=:,./-]|\$\{\w+\})+$`)
	apostrophe = strings.NewReplacer("'", `'\''`)
)

// shellLine returns a command as typed in a shell.
func shellLine(words []string) string {
	words = slices.Clone(words)
	for i, word := range words {
		if !bareWord.MatchString(word) {
			words[i] = "'" + apostrophe.Replace(word) + "'"
		}
	}
	return strings.Join(words, " ")
}

// best returns the index of the offer for add; -1 for none. It prefers an installed program, then a URL without SSE,
// then a URL with SSE.
func best(offers []offer) int {
	installed := func(o offer) bool {
		if len(o.Runs) == 0 {
			return false
		}
		_, err := exec.LookPath(o.Runs[0])
		return err == nil
	}
	for _, fits := range []func(offer) bool{installed, func(o offer) bool { return o.URL != "" && o.plan.Server.Transport != "sse" }, func(o offer) bool { return o.URL != "" }, func(o offer) bool { return o.Problem == "" }} {
		if i := slices.IndexFunc(offers, func(o offer) bool { return o.Problem == "" && fits(o) }); i >= 0 {
			return i
		}
	}
	return -1
}

// ownName makes a name for the configuration from the last part of a registry name.
func ownName(name string) string {
	legal := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, name[strings.LastIndex(name, "/")+1:])
	return strings.TrimLeft(rawjson.Head(legal, 48), "-_.")
}

func (f *registryFlags) show(cmd *cobra.Command, l registry.Listing) error {
	offers, err := f.offers(l)
	if err != nil && len(l.Ways) > 0 {
		return err
	}
	takes := best(offers)
	if asJSON(cmd) {
		taken := ""
		if takes >= 0 {
			taken = offers[takes].Package
		}
		return printJSON(cmd.OutOrStdout(), struct {
			registry.Listing
			Offers []offer `json:"offers"`
			Takes  string  `json:"takes,omitempty"`
		}{l, offers, taken})
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s %s\n%s\n", l.Name, l.Version, l.Description)
	for _, place := range unique([]string{l.Website, l.Repository}) {
		if place != "" {
			fmt.Fprintln(out, place)
		}
	}
	printStatus(out, l)
	for i, o := range offers {
		fmt.Fprintf(out, "\n%s: ", o.Package)
		o.print(out)
		if i == takes {
			fmt.Fprintf(out, "  toolfinch server add %s takes this\n", l.Name)
		}
	}
	if len(offers) == 0 {
		fmt.Fprintln(out, "\nno package and no URL: it is installed in a way of its own")
	}
	return nil
}

func printStatus(w io.Writer, l registry.Listing) {
	if l.Status == "" || l.Status == "active" {
		return
	}
	text := "its publisher has marked it as " + l.Status
	if l.StatusMessage != "" {
		text += ": " + l.StatusMessage
	}
	fmt.Fprintln(w, text)
}

// print shows the command or URL of the offer, and its needs.
func (o offer) print(w io.Writer) {
	if o.Problem != "" {
		fmt.Fprintf(w, "not for toolfinch: %s\n", o.Problem)
		return
	}
	fmt.Fprintln(w, shellLine(o.Runs)+o.URL)
	for _, name := range slices.Sorted(maps.Keys(o.Env)) {
		fmt.Fprintf(w, "  variable %s=%s\n", name, o.Env[name])
	}
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		fmt.Fprintf(w, "  header %s: %s\n", name, o.Headers[name])
	}
	for _, note := range o.Notes {
		fmt.Fprintln(w, "  note:", note)
	}
	t := &table{indent: "  ", head: []string{"NEEDS", "AS", "NOW", "WHAT IT IS"}}
	for _, need := range o.Needs {
		about := need.About
		if len(need.Choices) > 0 {
			about = strings.TrimSpace(about + " (" + strings.Join(need.Choices, ", ") + ")")
		}
		as := need.Where
		if need.Secret {
			as += ", secret"
		}
		t.add(need.Name, as, stateOf(need), about)
	}
	if len(t.rows) > 0 {
		_ = t.print(w)
	}
}

// stateOf says where the value of a need comes from.
func stateOf(need registry.Need) string {
	switch {
	case need.Given:
		return "given"
	case need.Variable == "" && need.Default != "":
		return "default " + need.Default
	case need.Variable == "":
		return "left out"
	}
	if _, ok := os.LookupEnv(need.Variable); ok {
		return "${" + need.Variable + "}, set here"
	}
	return "${" + need.Variable + "}, not set here"
}

func (s *settings) addListing(cmd *cobra.Command, f *registryFlags, l registry.Listing) error {
	if l.Status == "deleted" {
		return fmt.Errorf("%s is deleted from the registry: %s", l.Name, cmp.Or(l.StatusMessage, "no reason is given"))
	}
	given, err := repeated(f.set)
	if err != nil {
		return err
	}
	path, err := s.editedFile(true)
	if err != nil {
		return err
	}
	chosen, err := f.choose(l, given)
	if err != nil {
		return err
	}
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	printStatus(notes, l)
	server := chosen.plan.Server
	if err := configs.AddServerUnset(path, server); err != nil {
		if taken, ok := errors.AsType[*configs.NameError](err); ok && taken.Taken {
			return &exitError{exitUsage, fmt.Errorf("%w: choose another name with --as", err)}
		}
		return editError(err)
	}
	fmt.Fprintf(out, "added server %q to %s: ", server.Name, shown(path))
	chosen.print(out)
	if unset := configs.Unset(textsOf(server)...); len(unset) > 0 {
		fmt.Fprintf(notes, "%s not set here: toolfinch leaves %q out where that is so\n", isOrAre(unset), server.Name)
	}
	return nil
}

// choose returns the offer to take, with the given values.
func (f *registryFlags) choose(l registry.Listing, given map[string][]string) (offer, error) {
	offers, err := f.offers(l)
	if err != nil {
		return offer{}, err
	}
	at := best(offers)
	if at < 0 {
		return offer{}, fmt.Errorf("%s cannot be added: %s", l.Name, offers[0].Problem)
	}
	chosen, err := f.offer(l, offers[at].way, given)
	if err == nil && chosen.Problem != "" {
		err = fmt.Errorf("%s cannot be added so: %s", l.Name, chosen.Problem)
	}
	return chosen, err
}

// repeated reads NAME=VALUE pairs. Errors never contain the values.
func repeated(given []string) (map[string][]string, error) {
	all := map[string][]string{}
	for _, pair := range given {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, &exitError{exitUsage, errors.New("--set takes NAME=VALUE")}
		}
		all[name] = append(all[name], value)
	}
	return all, nil
}
