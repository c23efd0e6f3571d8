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

	"toolfinch/internal/must"
	"toolfinch/store"
)

// savingsHome is a configuration with one server, and its data folder.
func savingsHome(t *testing.T) (flags []string, data string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "toolfinch.yaml")
	must.Do(t, os.WriteFile(config, []byte("mcp_servers:\n  clock: {command: none}\n"), 0o600))
	data = filepath.Join(dir, "data")
	return []string{"--config", config, "--data-dir", data}, data
}

func TestSavingsArePrinted(t *testing.T) {
	flags, data := savingsHome(t)
	db := must.Get(store.Open(t.Context(), data, slog.New(slog.DiscardHandler)))(t)
	defer db.Close() // it stays open, as that of a running proxy
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
	for ago, all := range map[int][]store.Savings{
		0: {{View: "default", Sessions: 2, Retrievals: 9, Starts: 2, Steps: 20, Appended: 1, Listed: 1_000, Relisted: 400, Answers: 4_000, Results: 2_000, Reread: 600,
			Cached: 50_000, AllSteps: 11, AllListed: 80_000, AllCached: 400_000}},
		2: {{View: "default", Sessions: 1, Retrievals: 1, Starts: 1, Steps: 2, Listed: 1_000, Answers: 1_000, Cached: 1_000, AllSteps: 1, AllListed: 40_000},
			{View: "empty", Sessions: 1}},
		20: {{View: "code", Sessions: 1_000, Retrievals: 2_000, Starts: 1_000, Steps: 5_000, Listed: 2_000_000, Answers: 1_000_000, Results: 100_000, Cached: 9_000_000,
			AllSteps: 3_000, AllListed: 2_500_000, AllCached: 4_000_000}},
		40: {{View: "default", Sessions: 7, AllListed: 7}},
	} {
		must.Do(t, db.Usage().AddSavings(t.Context(), day(ago), all))
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
		{nil, `VIEW     SESSIONS  STEPS  SEARCHES  LISTED     RELISTED  ANSWERS    RESULTS  COST       LISTING ALL  SAVED
code     1,000     5,000  2,000     2,000,000  0         1,000,000  100,000  4,775,000  3,650,000    -30.8 %
default  3         22     10        2,000      400       5,000      2,000    17,600     192,500      90.9 %
empty    1         0      0         0          0         0          0        0          0            -

saved -24.7 % (-950,100 of 3,842,500 in 1,004 sessions)
lists changed 1 time in mid-session (1 at the end, 0 inside), which cost at least 1,190
view code cost 1,125,000 more than listing every tool would have: let it list them, with ` + "`direct_below: 3000` (and `routing_type: AUTO`)" + `
`},
		{[]string{"--since", "1d"}, `VIEW     SESSIONS  STEPS  SEARCHES  LISTED  RELISTED  ANSWERS  RESULTS  COST    LISTING ALL  SAVED
default  2         20     9         1,000   400       4,000    2,000    15,000  142,500      89.5 %

saved 89.5 % (127,500 of 142,500 in 2 sessions)
lists changed 1 time in mid-session (1 at the end, 0 inside), which cost at least 1,190
not seen: an agent's own prompt and messages, which 9 steps more and each changed list carry. If they have more than 62,195 tokens, listing every tool would have been cheaper
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
	must.Do(t, json.Unmarshal([]byte(savings("--json", "--since", "3d")), &got))
	if got.Since != day(2) || len(got.Savings) != 2 {
		t.Fatalf("got %+v", got)
	}
	if row := got.Savings[0]; row["view"] != "default" || row["sessions"] != 3.0 || row["percent"] != 90.9 {
		t.Errorf("the row of the view is %v", row)
	}
	if row := got.Savings[1]; row["percent"] != nil || row["saved"] != 0.0 {
		t.Errorf("the row of the empty view is %v", row)
	}
	if got.Total["all_listed"] != 120_000.0 || got.Total["saved"] != 174_900.0 || got.Total["view"] != nil {
		t.Errorf("the total is %v", got.Total)
	}

	savings("--reset")
	if stdout, stderr := printed(); stdout != "" || !strings.Contains(stderr, "no session has been counted since") {
		t.Errorf("after --reset: %s%s", stdout, stderr)
	}
}

func TestWhatSavingsSay(t *testing.T) {
	for _, test := range []struct {
		of   store.Savings
		want []string
	}{
		{store.Savings{Sessions: 12}, []string{"no session has called a tool yet: there is nothing to compare"}},
		{store.Savings{Sessions: 1, Starts: 1, Steps: 2, Listed: 1000, Cached: 1000, AllSteps: 2, AllListed: 1000, AllCached: 1000},
			[]string{"saved 0.0 % (0 of 1,350 in 1 session)"}},
		{store.Savings{Sessions: 1, Starts: 1, Steps: 3, Listed: 1000, Cached: 2000, AllSteps: 2, AllListed: 1000, AllCached: 1000},
			[]string{"saved -7.4 % (-100 of 1,350 in 1 session)",
				"view v cost 100 more than listing every tool would have: it lists them all, and the rest is meta-tools beside them and their answers"}},
		{store.Savings{Sessions: 1, Starts: 1, Steps: 12, Appended: 1, Listed: 300, Relisted: 100, Cached: 1000, AllSteps: 2, AllListed: 6500, AllCached: 6500},
			[]string{"saved 93.2 % (8,175 of 8,775 in 1 session)",
				"lists changed 1 time in mid-session (1 at the end, 0 inside), which cost at least 125",
				"not seen: an agent's own prompt and messages, which 10 steps more and each changed list carry. If they have more than 3,802 tokens, " +
					"listing every tool would have been cheaper: the prompt of Claude Code has 18,000. Then `routing_type: CALL_TOOL` helps, with which a list does not change in mid-session"}},
		{store.Savings{Sessions: 1, Starts: 1, Steps: 30, Listed: 900, Answers: 2000, Cached: 9000, AllSteps: 2, AllListed: 1000, AllCached: 1000},
			[]string{"saved -235.2 % (-3,175 of 1,350 in 1 session)",
				"view v cost 3,175 more than listing every tool would have: let it list them, with `direct_below: 2000` (and `routing_type: AUTO`)"}},
		{store.Savings{Sessions: 1, Starts: 1, Steps: 3, Appended: 1, Changed: 1, Listed: 500, Relisted: 1000, Reread: 1000, Cached: 500, AllSteps: 3, AllListed: 1000, AllCached: 2000},
			[]string{"saved -119.0 % (-1,725 of 1,450 in 1 session)",
				"lists changed 2 times in mid-session (1 at the end, 1 inside), which cost at least 2,400",
				"view v cost 1,725 more than listing every tool would have: `routing_type: CALL_TOOL` helps, with which a list does not change in mid-session"}},
	} {
		test.of.View = "v"
		row := savingsOf(test.of)
		got := row.lines()
		if advice := row.advice(); advice != "" {
			got = append(got, advice)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v:\n%q, want\n%q", test.of, got, test.want)
		}
	}
}
