package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/proxy"
	"toolfinch/rawjson"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// typicalQueries are what the session over recorded servers asks for, unless it is
// told what.
var typicalQueries = []string{
	"create an issue in a GitHub repository",
	"show the logs of a Kubernetes pod",
	"query metrics from Prometheus",
	"send a message to a Slack channel",
	"take a screenshot of a web page",
}

func newSavings(s *settings) *cobra.Command {
	var since, recorded string
	var queries []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "savings",
		Short: "Show how many tokens retrieval has saved, or saves on recorded servers",
		Long: `Savings prints, by view and client, how many tokens models have read less because
they were not listed every tool. Days are those of UTC.

FULL is what listing every tool of the view would have cost, once a session.
LISTED is what the definitions cost that tools/list sent, each once a session.
RETRIEVALS are searches for tools, and ANSWERS is what the answers of
retrieve_tools and the other meta-tools cost that find and describe tools. Saved
is FULL without LISTED and ANSWERS; below zero, listing everything would have been
cheaper. Results of called tools and answers that failed are not counted.

A 2026-07-28 client has no sessions: it counts as in one until half an hour after
its last list or answer. Clients of a view that have the same name and version
are in the same one then, whoever their users are.

With --recorded, nothing of that is read: the tools of recorded servers are put
behind a toolfinch of their own, a client connects, lists tools, asks for five
things, lists again whenever the list has changed, and its savings are printed.
FOLDER has a JSON file for each server, an object with its "tools" as tools/list
sent them. No server is started, and words alone decide what is found.`,
		Example: `  toolfinch savings
  toolfinch savings --since 7d
  toolfinch savings --since 2026-11-01 --json
  toolfinch savings --recorded ./servers --query "create an issue" --query "read a page"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if recorded == "" {
				if cmd.Flags().Changed("query") {
					return &exitError{exitUsage, errors.New("--query says what to ask of recorded servers: it needs --recorded")}
				}
				return s.accountedSavings(cmd, since, asJSON)
			}
			if cmd.Flags().Changed("since") {
				return &exitError{exitUsage, errors.New("--since is of sessions that were accounted: leave it out with --recorded")}
			}
			if !cmd.Flags().Changed("query") {
				queries = typicalQueries
			}
			played, err := playRecorded(cmd.Context(), recorded, queries, cmd.ErrOrStderr())
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), played)
			}
			return played.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&since, "since", "30d", "from when on: a number of days, today's counted, or a `DAY` like 2026-11-01")
	cmd.Flags().StringVar(&recorded, "recorded", "", "measure a session over the servers recorded in `FOLDER`")
	cmd.Flags().StringArrayVar(&queries, "query", nil, "with --recorded: ask for `TEXT`; repeat it for more (default: five typical tasks)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// accountedSavings prints what the store has of savings.
func (s *settings) accountedSavings(cmd *cobra.Command, since string, asJSON bool) error {
	from, err := sinceDay(since, time.Now())
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--since: %w", err)}
	}
	return s.withStore(cmd, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
		days, err := db.Savings(ctx, from)
		if err != nil {
			return err
		}
		all := summed(days)
		day := from.Format(time.DateOnly)
		switch {
		case asJSON:
			return printJSON(cmd.OutOrStdout(), struct {
				Since   string       `json:"since"`
				Savings []savingsRow `json:"savings"`
				Total   savingsRow   `json:"total"`
			}{day, all, totalOf(all)})
		case len(all) == 0:
			fmt.Fprintln(cmd.ErrOrStderr(), "no session has been accounted since", day)
			return nil
		}
		return printSavings(cmd.OutOrStdout(), all)
	})
}

// maxSince is how many days --since may reach back: more than any store has.
const maxSince = 36_500

// sinceDay is the day, in UTC, from which on savings are shown.
func sinceDay(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 1 && n <= maxSince {
			return now.UTC().AddDate(0, 0, 1-n).Truncate(24 * time.Hour), nil
		}
	} else if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a number of days like 30d nor a day like 2026-11-01", text)
}

// savingsRow is what was saved, in tokens.
type savingsRow struct {
	View       string   `json:"view,omitempty"` // "" in a total
	Client     string   `json:"client,omitempty"`
	Sessions   int      `json:"sessions"`
	Retrievals int      `json:"retrievals"`
	Full       int64    `json:"full"`    // listing every tool
	Listed     int64    `json:"listed"`  // definitions that were listed
	Answers    int64    `json:"answers"` // of meta-tools that find and describe tools
	Saved      int64    `json:"saved"`
	Percent    *float64 `json:"percent"` // of Full; null where that is 0
}

// add adds what was accounted to the row.
func (r *savingsRow) add(s store.Savings) {
	r.Sessions += s.Sessions
	r.Retrievals += s.Retrievals
	r.Full += s.Full
	r.Listed += s.Listed
	r.Answers += s.Answers
	r.Saved = r.Full - r.Listed - r.Answers
	if r.Full > 0 {
		percent := math.Round(1000*float64(r.Saved)/float64(r.Full)) / 10
		r.Percent = &percent
	}
}

// summed are the rows of views and clients, in their order, over all days.
func summed(days []store.Savings) []savingsRow {
	all := []savingsRow{}
	for _, day := range days {
		i := slices.IndexFunc(all, func(r savingsRow) bool { return r.View == day.View && r.Client == day.Client })
		if i < 0 {
			i = len(all)
			all = append(all, savingsRow{View: day.View, Client: day.Client})
		}
		all[i].add(day)
	}
	slices.SortFunc(all, func(a, b savingsRow) int {
		return slices.Compare([]string{a.View, a.Client}, []string{b.View, b.Client})
	})
	return all
}

func totalOf(rows []savingsRow) savingsRow {
	var total savingsRow
	for _, r := range rows {
		total.add(store.Savings{Sessions: r.Sessions, Retrievals: r.Retrievals, Full: r.Full, Listed: r.Listed, Answers: r.Answers})
	}
	return total
}

func printSavings(w io.Writer, rows []savingsRow) error {
	t := table{head: []string{"VIEW", "CLIENT", "SESSIONS", "RETRIEVALS", "FULL", "LISTED", "ANSWERS", "SAVED"}}
	for _, r := range rows {
		client := r.Client
		if client == "" {
			client = "-"
		}
		t.add(r.View, client, grouped(int64(r.Sessions)), grouped(int64(r.Retrievals)), grouped(r.Full), grouped(r.Listed), grouped(r.Answers), r.percent())
	}
	if err := t.print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", totalOf(rows))
	return err
}

// percent is the share that was saved, "-" where there was nothing to save.
func (r savingsRow) percent() string {
	if r.Percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*r.Percent, 'f', 1, 64) + " %"
}

// String says in a line what was saved.
func (r savingsRow) String() string {
	sessions := grouped(int64(r.Sessions)) + " sessions"
	if r.Sessions == 1 {
		sessions = "1 session"
	}
	share := "nothing"
	if r.Percent != nil {
		share = r.percent()
	}
	line := fmt.Sprintf("saved %s (%s of %s tokens in %s)", share, grouped(r.Saved), grouped(r.Full), sessions)
	if r.Saved < 0 {
		line += ": listing every tool would have been cheaper"
	}
	return line
}

// grouped is a number with its digits in threes: 412,000.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// played is a session over recorded servers.
type played struct {
	Servers int          `json:"servers"`
	Tools   int          `json:"tools"`
	Lists   int          `json:"lists"` // tools/list requests
	Queries []playedFind `json:"queries"`
	Total   savingsRow   `json:"total"`
}

// playedFind is a query and the names of the tools that it found.
type playedFind struct {
	Query string   `json:"query"`
	Found []string `json:"found"`
}

func (p *played) print(w io.Writer) error {
	queries := table{head: []string{"QUERY", "FOUND"}}
	for _, q := range p.Queries {
		found := strings.Join(q.Found, " ")
		if found == "" {
			found = "-"
		}
		queries.add(q.Query, found)
	}
	if err := queries.print(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	sums := table{}
	sums.add("servers", grouped(int64(p.Servers)), "with "+grouped(int64(p.Tools))+" tools")
	sums.add("full", grouped(p.Total.Full), "tokens of listing every tool")
	sums.add("listed", grouped(p.Total.Listed), fmt.Sprintf("tokens of definitions (tools/list: %d)", p.Lists))
	sums.add("answers", grouped(p.Total.Answers), fmt.Sprintf("tokens of answers (retrieve_tools: %d)", p.Total.Retrievals))
	if err := sums.print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", p.Total)
	return err
}

// maxPlay bounds the session over recorded servers.
const maxPlay = 5 * time.Minute

// playRecorded puts the servers recorded in folder behind a proxy that has them
// from its store, and plays a session with it. Tools that are left out are told
// to warnings.
func playRecorded(ctx context.Context, folder string, queries []string, warnings io.Writer) (_ *played, err error) {
	servers, err := readRecorded(folder, warnings)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxPlay)
	defer cancel()
	dir, err := os.MkdirTemp("", "toolfinch-savings-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log := slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	config := &configs.Config{
		DataDir: dir, Routing: configs.RoutingAuto, CallTool: configs.CallToolSingle,
		TopK: configs.DefaultTopK, MaxRegistered: configs.DefaultMaxRegistered,
	}
	out := &played{Servers: len(servers)}
	for _, s := range servers {
		// Run, which would start it, is not called.
		config.Servers = append(config.Servers, upstream.Settings{Name: s.name, Command: "recorded", Validate: true})
	}
	if err := storeRecorded(ctx, dir, servers, log); err != nil {
		return nil, err
	}
	p, err := proxy.Open(ctx, config, version, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Complete(ctx); err != nil {
		return nil, err
	}
	out.Tools = p.Tools()
	if err := out.play(ctx, p, queries); err != nil {
		return nil, fmt.Errorf("session over recorded servers: %w", err)
	}
	for _, sum := range p.Savings(ctx) {
		out.Total.add(sum)
	}
	return out, nil
}

// recordedServer is a server as a file has it.
type recordedServer struct {
	name string
	defs []*tool.Def
}

// readRecorded reads the files of folder, in the order of their names.
func readRecorded(folder string, warnings io.Writer) ([]recordedServer, error) {
	files, err := filepath.Glob(filepath.Join(escapeGlob(folder), "*.json"))
	if err != nil || len(files) == 0 {
		return nil, &exitError{exitUsage, fmt.Errorf("--recorded: there are no files *.json in %s", folder)}
	}
	names := recordedNames(files)
	servers := make([]recordedServer, len(files))
	for i, file := range files {
		servers[i].name = names[i]
		if servers[i].defs, err = readRecordedTools(file, names[i], warnings); err != nil {
			return nil, &exitError{exitUsage, fmt.Errorf("--recorded: %s: %w", filepath.Base(file), err)}
		}
	}
	return servers, nil
}

// escapeGlob makes a pattern that matches the path alone.
func escapeGlob(path string) string {
	if filepath.Separator == '\\' {
		return path // nothing can be escaped there
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// recordedNames are the names of the servers in files: what follows the last "__"
// where no other has that, as scope__package.json says whose package it is.
func recordedNames(files []string) []string {
	whole, last, count := make([]string, len(files)), make([]string, len(files)), map[string]int{}
	for i, file := range files {
		whole[i] = strings.TrimSuffix(filepath.Base(file), ".json")
		last[i] = whole[i]
		if at := strings.LastIndex(whole[i], "__"); at >= 0 {
			last[i] = whole[i][at+len("__"):]
		}
		count[last[i]]++
	}
	for i := range last {
		if last[i] == "" || count[last[i]] > 1 {
			last[i] = whole[i]
		}
	}
	return last
}

func readRecordedTools(file, server string, warnings io.Writer) ([]*tool.Def, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, errors.Unwrap(err) // without the path
	}
	if !json.Valid(raw) {
		return nil, errors.New("it is not JSON")
	}
	tools := rawjson.Member(raw, "tools")
	if !bytes.HasPrefix(tools, []byte("[")) {
		return nil, errors.New(`it is no object with an array "tools"`)
	}
	defs := []*tool.Def{}
	for element := range rawjson.Elements(tools) {
		var line bytes.Buffer // files are often indented, messages are not
		if err := json.Compact(&line, element); err != nil {
			return nil, err
		}
		def, err := tool.ParseDef(server, line.Bytes())
		if err != nil {
			fmt.Fprintf(warnings, "warning: %s: a tool is left out: %v\n", filepath.Base(file), err)
			continue
		}
		defs = append(defs, def)
	}
	return defs, nil
}

// storeRecorded makes a store in dir that knows the servers.
func storeRecorded(ctx context.Context, dir string, servers []recordedServer, log *slog.Logger) (err error) {
	db, err := store.Open(ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if !db.Durable() {
		return errors.New("a temporary store cannot be made")
	}
	for _, s := range servers {
		if _, err := db.PutServer(ctx, store.Server{Name: s.name}, s.defs); err != nil {
			return err
		}
	}
	return nil
}

// play is a session at the other end of a pipe, as of an agent that starts
// toolfinch.
func (p *played) play(ctx context.Context, served *proxy.Proxy, queries []string) error {
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := served.ServeStdio(ctx, toServer, fromServer)
		toServer.Close()
		fromServer.Close()
		ended <- err
	}()
	// Reading and writing a pipe do not end with a context.
	defer context.AfterFunc(ctx, func() { toClient.CloseWithError(context.Cause(ctx)) })()
	c := &recordedClient{out: fromClient, in: bufio.NewReader(toClient)}
	err := c.session(queries, p)
	fromClient.Close()
	toClient.Close()
	return errors.Join(err, <-ended)
}

// recordedClient is an agent cut down to what costs tokens: it lists tools at the
// start and whenever the list has changed, and asks retrieve_tools.
type recordedClient struct {
	out    io.Writer
	in     *bufio.Reader
	lastID int
	lists  int
}

func (c *recordedClient) session(queries []string, to *played) error {
	_, err := c.ask("initialize", map[string]any{
		"protocolVersion": mcp.LATEST_LEGACY_PROTOCOL_VERSION, "capabilities": struct{}{},
		"clientInfo": map[string]string{"name": "toolfinch-savings", "version": "1"},
	})
	if err != nil {
		return err
	}
	if err := c.send(map[string]any{"method": "notifications/initialized"}); err != nil {
		return err
	}
	if _, err := c.ask("tools/list", struct{}{}); err != nil {
		return err
	}
	for _, query := range queries {
		answer, err := c.ask("tools/call", map[string]any{"name": retrieve.RetrieveTools, "arguments": map[string]string{"query": query}})
		if err != nil {
			return err
		}
		if tool.Result(answer).Failed() {
			return fmt.Errorf("query %q: %s", query, tool.Result(answer).Value())
		}
		found := playedFind{query, []string{}}
		for item := range rawjson.Elements(rawjson.Member(tool.Result(answer).Value(), "tools")) {
			found.Found = append(found.Found, rawjson.Text(rawjson.Member(item, "name")))
		}
		to.Queries = append(to.Queries, found)
	}
	_, err = c.ask("ping", struct{}{}) // what was sent before has come when this is answered
	to.Lists = c.lists
	return err
}

// ask sends a request and returns its result. Where the list of tools has changed
// meanwhile it lists them again.
func (c *recordedClient) ask(method string, params any) (json.RawMessage, error) {
	id, err := c.request(method, params)
	if err != nil {
		return nil, err
	}
	waiting := map[int]bool{id: true}
	var result json.RawMessage
	for len(waiting) > 0 {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		var m struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		switch {
		case m.Method == "notifications/tools/list_changed":
			relist, err := c.request("tools/list", struct{}{})
			if err != nil {
				return nil, err
			}
			waiting[relist] = true
		case m.Method != "":
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, m.Error)
		default:
			if m.ID == id {
				result = m.Result
			}
			delete(waiting, m.ID)
		}
	}
	return result, nil
}

func (c *recordedClient) request(method string, params any) (id int, err error) {
	if method == "tools/list" {
		c.lists++
	}
	c.lastID++
	return c.lastID, c.send(map[string]any{"id": c.lastID, "method": method, "params": params})
}

func (c *recordedClient) send(message map[string]any) error {
	message["jsonrpc"] = "2.0"
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(line, '\n'))
	return err
}
