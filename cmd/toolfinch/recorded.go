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
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

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
	p, err := proxy.Open(ctx, config, proxy.WithVersion(version), proxy.WithLogger(log))
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
