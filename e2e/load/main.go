// Command load measures a running MCP server over streamable HTTP: retrieve_tools, or calls of another tool.
// Pointed at an upstream in the place of the proxy, the same calls give the figure to compare with. Every caller
// has a session of its own.
//
//	toolfinch serve --transport http --port 8080 &
//	cd e2e && go run ./load -query "read a file" -query "create an issue"
//	cd e2e && go run ./load -tool math_evaluate -args '{"expression":"1+1"}' -callers 1,16
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// measured is one row of a load run. Times are in milliseconds.
type measured struct {
	Callers, Requests, Errors     int
	PerSecond, P50, P90, P99, Max float64
}

func main() {
	b := load{}
	var callers string
	asJSON := flag.Bool("json", false, "print JSON")
	var requests int
	arguments := ""
	flag.StringVar(&b.url, "url", "http://127.0.0.1:8080/mcp", "streamable HTTP endpoint")
	flag.Func("query", "what to ask retrieve_tools; several are asked in turn", func(query string) error {
		asked, err := json.Marshal(map[string]string{"query": query})
		b.arguments = append(b.arguments, asked)
		return err
	})
	flag.StringVar(&b.name, "tool", "retrieve_tools", "the tool that is called")
	flag.StringVar(&arguments, "args", "", "arguments of another tool, a JSON object")
	flag.IntVar(&requests, "n", 2000, "requests a row")
	flag.StringVar(&callers, "callers", "1,16", "callers at a time, a row each")
	flag.Parse()
	switch {
	case arguments != "":
		b.arguments = []json.RawMessage{json.RawMessage(arguments)}
	case len(b.arguments) == 0:
		b.arguments = []json.RawMessage{json.RawMessage(`{"query":"read a file"}`)}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "what\tcallers\trequests\terrors\tper second\tp50 ms\tp90 ms\tp99 ms\tmax ms\t")
	var rows []measured
	for text := range strings.SplitSeq(callers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > requests {
			log.Fatal("-callers takes numbers from 1 to -n")
		}
		r, err := b.run(ctx, n, requests)
		if err != nil {
			log.Fatal(err)
		}
		rows = append(rows, r)
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.0f\t%.3f\t%.3f\t%.3f\t%.3f\t\n",
			b.name, n, r.Requests, r.Errors, r.PerSecond, r.P50, r.P90, r.P99, r.Max)
	}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(rows)
		return
	}
	_ = table.Flush()
}

// load is one kind of request to one endpoint.
type load struct {
	url, name string
	arguments []json.RawMessage // in turn
}

// warmUp is how many requests each caller makes before it counts.
const warmUp = 20

func (b load) run(ctx context.Context, callers, requests int) (measured, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: callers, MaxConnsPerHost: callers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	sessions := make([]caller, callers)
	for i := range sessions {
		sessions[i] = caller{client: client, url: b.url}
		if err := sessions[i].initialize(ctx); err != nil {
			return measured{}, err
		}
		defer sessions[i].end()
	}
	bodies := make([][]byte, len(b.arguments))
	for i, arguments := range b.arguments {
		body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call",
			"params": map[string]any{"name": b.name, "arguments": arguments}})
		if err != nil {
			return measured{}, err
		}
		bodies[i] = body
	}
	if err := sessions[0].call(ctx, bodies[0]); err != nil {
		return measured{}, fmt.Errorf("the first %s failed: %w", b.name, err)
	}

	var left, failed atomic.Int64
	left.Store(int64(requests))
	times := make([][]time.Duration, callers)
	var warm, done sync.WaitGroup
	start := make(chan struct{})
	warm.Add(callers)
	for i, s := range sessions {
		done.Go(func() {
			for n := range warmUp {
				_ = s.call(ctx, bodies[(i+n)%len(bodies)])
			}
			warm.Done()
			<-start
			for n := left.Add(-1); n >= 0 && ctx.Err() == nil; n = left.Add(-1) {
				began := time.Now()
				if s.call(ctx, bodies[n%int64(len(bodies))]) != nil {
					failed.Add(1)
				}
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	warm.Wait()
	began := time.Now()
	close(start)
	done.Wait()
	took := time.Since(began)

	all := slices.Concat(times...)
	slices.Sort(all)
	at := func(q float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return float64(all[min(len(all)-1, int(q*float64(len(all))))].Microseconds()) / 1000
	}
	return measured{Callers: callers, Requests: len(all), Errors: int(failed.Load()),
		PerSecond: float64(len(all)) / took.Seconds(), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}, ctx.Err()
}

// caller is one client session, cut down to what a load needs.
type caller struct {
	client  *http.Client
	url     string
	session string
}

func (c *caller) initialize(ctx context.Context) error {
	response, err := c.post(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+
		mcp.LATEST_LEGACY_PROTOCOL_VERSION+`","capabilities":{},"clientInfo":{"name":"toolfinch-load","version":"1"}}}`))
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("initialize: %s answered %s", c.url, response.Status)
	}
	c.session = response.Header.Get("Mcp-Session-Id")
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// call fails on a protocol error and on a tool error.
func (c *caller) call(ctx context.Context, body []byte) error {
	response, err := c.post(ctx, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	// A notification may come first; the answer is the last event.
	if i := bytes.LastIndex(answer, []byte("\ndata: ")); i >= 0 {
		answer = answer[i+len("\ndata: "):]
	} else {
		answer = bytes.TrimPrefix(answer, []byte("data: "))
	}
	var reply struct {
		Error  json.RawMessage `json:"error"`
		Result struct {
			IsError bool `json:"isError"`
		} `json:"result"`
	}
	if err := json.Unmarshal(answer, &reply); err != nil {
		return fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(answer[:min(200, len(answer))])))
	}
	if reply.Error != nil || reply.Result.IsError {
		return fmt.Errorf("the answer is an error: %s", answer[:min(300, len(answer))])
	}
	return nil
}

func (c *caller) post(ctx context.Context, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		request.Header.Set("Mcp-Session-Id", c.session)
	}
	return c.client.Do(request)
}

func (c *caller) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.url, nil)
	if err != nil || c.session == "" {
		return
	}
	request.Header.Set("Mcp-Session-Id", c.session)
	if response, err := c.client.Do(request); err == nil {
		response.Body.Close()
	}
}
