package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/store"
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
	for ago, all := range map[int][]store.Savings{
		0:  {{View: "default", Sessions: 2, Retrievals: 9, Full: 800_000, Listed: 9_000, Answers: 11_000}},
		2:  {{View: "default", Sessions: 1, Retrievals: 1, Full: 400_000, Listed: 3_000, Answers: 1_000}, {View: "empty", Sessions: 1, Listed: 500}},
		20: {{View: "code", Sessions: 1_000, Retrievals: 2_000, Full: 1_000_000, Listed: 900_000, Answers: 150_000}},
		40: {{View: "default", Sessions: 7, Full: 7}},
	} {
		if err := db.AddSavings(t.Context(), day(ago), all); err != nil {
			t.Fatal(err)
		}
	}
	printed := func(args ...string) (stdout, stderr string) {
		t.Helper()
		var out, problems bytes.Buffer
		if code := run(slices.Concat([]string{"savings"}, args, flags), strings.NewReader(""), &out, &problems); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, &problems)
		}
		return out.String(), problems.String()
	}
	savings := func(args ...string) string {
		t.Helper()
		stdout, stderr := printed(args...)
		if stderr != "" {
			t.Fatalf("%v: %s", args, stderr)
		}
		return stdout
	}

	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, `VIEW     SESSIONS  RETRIEVALS  FULL       LISTED   ANSWERS  SAVED
code     1,000     2,000       1,000,000  900,000  150,000  -5.0 %
default  3         10          1,200,000  12,000   12,000   98.0 %
empty    1         0           0          500      0        -

saved 51.2 % (1,125,500 of 2,200,000 tokens in 1,004 sessions)
`},
		{[]string{"--since", "1d"}, `VIEW     SESSIONS  RETRIEVALS  FULL     LISTED  ANSWERS  SAVED
default  2         9           800,000  9,000   11,000   97.5 %

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
	if row := got.Savings[0]; row["view"] != "default" || row["sessions"] != 3.0 || row["percent"] != 98.0 {
		t.Errorf("the row of the view is %v", row)
	}
	if row := got.Savings[1]; row["percent"] != nil || row["saved"] != -500.0 {
		t.Errorf("the row of the empty view is %v", row)
	}
	if got.Total["full"] != 1_200_000.0 || got.Total["saved"] != 1_175_500.0 || got.Total["view"] != nil {
		t.Errorf("the total is %v", got.Total)
	}

	savings("--reset")
	if stdout, stderr := printed(); stdout != "" || !strings.Contains(stderr, "no session has been counted since") {
		t.Errorf("after --reset: %s%s", stdout, stderr)
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
		if got := savingsOf(test.of).String(); got != test.want {
			t.Errorf("%+v: %s, want %s", test.of, got, test.want)
		}
	}
}
