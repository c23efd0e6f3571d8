package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/store"
	"toolfinch/tool"
)

// savingsHome is a configuration with one server, and its data folder.
func savingsHome(t *testing.T) (flags []string, data string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "toolfinch.yaml")
	if err := os.WriteFile(config, []byte("mcp_servers:\n  clock: {command: none}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data = filepath.Join(dir, "data")
	return []string{"--config", config, "--data-dir", data}, data
}

func TestSavingsArePrinted(t *testing.T) {
	flags, data := savingsHome(t)
	db, err := store.Open(t.Context(), data, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() // it stays open, as that of a running proxy
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
	err = db.AddSavings(t.Context(), []store.Savings{
		{Day: day(0), View: "default", Client: "claude-code 2.1", Sessions: 2, Retrievals: 9, Full: 800_000, Listed: 9_000, Answers: 11_000},
		{Day: day(2), View: "default", Client: "claude-code 2.1", Sessions: 1, Retrievals: 1, Full: 400_000, Listed: 3_000, Answers: 1_000},
		{Day: day(2), View: "default", Retrievals: 1, Answers: 500},
		{Day: day(20), View: "code", Client: "cursor 1.7", Sessions: 1_000, Retrievals: 2_000, Full: 1_000_000, Listed: 900_000, Answers: 150_000},
		{Day: day(40), View: "default", Client: "old 1", Sessions: 7, Full: 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	savings := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(slices.Concat([]string{"savings"}, args, flags), strings.NewReader(""), &stdout, &stderr)
		if code != exitOK || stderr.Len() > 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, &stderr)
		}
		return stdout.String()
	}

	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, `VIEW     CLIENT           SESSIONS  RETRIEVALS  FULL       LISTED   ANSWERS  SAVED
code     cursor 1.7       1,000     2,000       1,000,000  900,000  150,000  -5.0 %
default  -                0         1           0          0        500      -
default  claude-code 2.1  3         10          1,200,000  12,000   12,000   98.0 %

saved 51.2 % (1,125,500 of 2,200,000 tokens in 1,003 sessions)
`},
		{[]string{"--since", "1d"}, `VIEW     CLIENT           SESSIONS  RETRIEVALS  FULL     LISTED  ANSWERS  SAVED
default  claude-code 2.1  2         9           800,000  9,000   11,000   97.5 %

saved 97.5 % (780,000 of 800,000 tokens in 2 sessions)
`},
		{[]string{"--since", "2d"}, savings("--since", "1d")},
		{[]string{"--since", day(2)}, savings("--since", "3d")},
	} {
		if got := savings(test.args...); got != test.want {
			t.Errorf("%v:\n%swant\n%s", test.args, got, test.want)
		}
	}

	var got struct {
		Since   string
		Savings []map[string]any
		Total   map[string]any
	}
	if err := json.Unmarshal([]byte(savings("--json", "--since", "3d")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Since != day(2) || len(got.Savings) != 2 {
		t.Fatalf("got %+v", got)
	}
	if row := got.Savings[0]; row["percent"] != nil || row["saved"] != -500.0 || row["client"] != nil {
		t.Errorf("the row of nobody is %v", row)
	}
	if row := got.Savings[1]; row["view"] != "default" || row["client"] != "claude-code 2.1" || row["sessions"] != 3.0 || row["percent"] != 98.0 {
		t.Errorf("the row of the client is %v", row)
	}
	if got.Total["full"] != 1_200_000.0 || got.Total["saved"] != 1_175_500.0 || got.Total["view"] != nil {
		t.Errorf("the total is %v", got.Total)
	}
}

func TestWhatWasSavedInALine(t *testing.T) {
	for _, test := range []struct {
		of   store.Savings
		want string
	}{
		{store.Savings{Sessions: 12, Full: 428_000, Listed: 6_000, Answers: 10_000}, "saved 96.3 % (412,000 of 428,000 tokens in 12 sessions)"},
		{store.Savings{Sessions: 1, Full: 1000, Listed: 1000}, "saved 0.0 % (0 of 1,000 tokens in 1 session)"},
		{store.Savings{Sessions: 2, Full: 1000, Listed: 1000, Answers: 999}, "saved -99.9 % (-999 of 1,000 tokens in 2 sessions): listing every tool would have been cheaper"},
		{store.Savings{Answers: 123_456}, "saved nothing (-123,456 of 0 tokens in 0 sessions): listing every tool would have been cheaper"},
	} {
		var row savingsRow
		row.add(test.of)
		if got := row.String(); got != test.want {
			t.Errorf("%+v: %s, want %s", test.of, got, test.want)
		}
	}
}

func TestRecordedServersAreNamed(t *testing.T) {
	files := []string{"scope__github.json", "a__mcp.json", "b__mcp.json", "plain.json", "host__group__deep.json", "odd__.json"}
	want := []string{"github", "a__mcp", "b__mcp", "plain", "deep", "odd__"}
	if got := recordedNames(files); !slices.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
}

// What a client does with toolfinch serve is accounted when it has left.
func TestSavingsOfServe(t *testing.T) {
	flags, data := savingsHome(t)
	var defs []*tool.Def
	for _, name := range []string{"now", "convert_time", "set_alarm", "list_alarms", "sunrise", "moon_phase"} {
		def, err := tool.ParseDef("clock", []byte(`{"name":"`+name+`","description":"`+strings.Repeat("What this does is told at length. ", 100)+`","inputSchema":{"type":"object"}}`))
		if err != nil {
			t.Fatal(err)
		}
		defs = append(defs, def)
	}
	if err := storeRecorded(t.Context(), data, []recordedServer{{"clock", defs}}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		code := run(append([]string{"serve"}, flags...), toServer, fromServer, &stderr)
		fromServer.Close()
		ended <- code
	}()
	var session played
	c := &recordedClient{out: fromClient, in: bufio.NewReader(toClient)}
	err := c.session([]string{"set an alarm"}, &session)
	fromClient.Close()
	go func() { _, _ = io.Copy(io.Discard, toClient) }() // until fromServer is closed
	if code := <-ended; err != nil || code != exitOK {
		t.Fatalf("session: %v; exit code %d: %s", err, code, &stderr)
	}

	var stdout bytes.Buffer
	if code := run(append([]string{"savings", "--json"}, flags...), strings.NewReader(""), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var got struct{ Savings []savingsRow }
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Savings) != 1 {
		t.Fatalf("accounted %s", &stdout)
	}
	row := got.Savings[0]
	if row.View != "default" || row.Client != "toolfinch-savings 1" || row.Sessions != 1 || row.Retrievals != 1 ||
		row.Full < 6*700 || row.Listed == 0 || row.Answers == 0 || row.Saved != row.Full-row.Listed-row.Answers {
		t.Errorf("accounted %s", &stdout)
	}
}

// A session of five retrievals over real servers reads a tenth of what listing
// all their tools costs, or less.
func TestSavingsOnRealServers(t *testing.T) {
	const folder = "../../../shared/realtools"
	if _, err := os.Stat(folder); err != nil {
		t.Skip("the definitions of real servers are not beside the repository (shared/realtools)")
	}
	var warnings bytes.Buffer
	got, err := playRecorded(t.Context(), folder, typicalQueries, &warnings)
	if err != nil {
		t.Fatalf("%v\n%s", err, &warnings)
	}
	t.Logf("%d servers, %d tools: %s", got.Servers, got.Tools, got.Total)
	if got.Servers < 30 || got.Tools < 1000 || got.Total.Sessions != 1 || got.Total.Retrievals != len(typicalQueries) || got.Lists < 2 {
		t.Errorf("the session was %+v", got)
	}
	if got.Total.Percent == nil || *got.Total.Percent < 90 {
		t.Errorf("%s, want 90 %%", got.Total)
	}
	for i, server := range []string{"github", "kubernetes", "grafana", "slack", "screenshot"} {
		if q := got.Queries[i]; len(q.Found) == 0 || !strings.Contains(q.Found[0], server) {
			t.Errorf("%q found %v", q.Query, q.Found)
		}
	}
	if warnings.Len() > 0 {
		t.Errorf("warnings: %s", &warnings)
	}
}
