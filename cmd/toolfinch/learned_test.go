package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/tool"
)

func TestLearnedIsListedAndForgotten(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "toolfinch.yaml")
	must.Do(t, os.WriteFile(config, []byte("learn: true\nmcp_servers:\n  clock: {command: none}\n"), 0o600))
	data := filepath.Join(dir, "data")
	db := must.Get(store.Open(t.Context(), data, slog.New(slog.DiscardHandler)))(t)
	defer db.Close() // it stays open, as that of a running proxy
	now := time.Now()
	for _, use := range []store.LearnedUse{
		{Query: "what time is it", Tool: tool.ID{Server: "clock", Name: "now"}, Count: 2, At: now.Add(-30 * 24 * time.Hour)},
		{Query: "What time is it in <Oslo>", Tool: tool.ID{Server: "clock", Name: "convert"}, Count: 3, At: now},
		{Query: "add 2 and 3", Tool: tool.ID{Server: "math", Name: "add"}, Count: 0.25, At: now},
	} {
		must.Do(t, db.Usage().PutLearned(t.Context(), use))
	}
	toolfinch := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(append(args, "--config", config, "--data-dir", data), strings.NewReader(""), &stdout, &stderr)
		if code != exitOK || stderr.Len() > 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, &stderr)
		}
		return stdout.String()
	}

	date := `\d{4}-\d\d-\d\d \d\d:\d\d`
	want := regexp.MustCompile(`^WEIGHT +LAST USED +TOOL +QUERY
3\.00 +` + date + ` +clock\.convert +What time is it in <Oslo>
1\.00 +` + date + ` +clock\.now +what time is it
0\.25 +` + date + ` +math\.add +add 2 and 3
$`)
	if got := toolfinch("learned"); !want.MatchString(got) {
		t.Errorf("learned:\n%s", got)
	}

	var out struct {
		Learned []struct {
			Query, Server, Tool string
			Weight              float64
			LastUsed            time.Time `json:"last_used"`
		}
	}
	text := toolfinch("learned", "--json")
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(out.Learned) != 3 || !strings.Contains(text, "<Oslo>") {
		t.Fatalf("got %s", text)
	}
	if r := out.Learned[1]; r.Query != "what time is it" || r.Server != "clock" || r.Tool != "now" || r.Weight < 0.999 || r.Weight > 1 || now.Sub(r.LastUsed).Hours() < 719 {
		t.Errorf("got %+v", r)
	}

	for _, test := range []struct {
		flags, want string
		left        int
	}{
		{"--tool=clock.now --query=oslo", "forgot 0\n", 3},
		{"--tool=math.add", "forgot 1\n", 2},
		{"--query=time IS it in", "forgot 1\n", 1},
		{"--all", "forgot 1\n", 0},
	} {
		args := []string{"learned", "forget"}
		for _, flag := range strings.Split(test.flags, " --") {
			args = append(args, "--"+strings.TrimPrefix(flag, "--"))
		}
		if got := toolfinch(args...); got != test.want {
			t.Errorf("%s: %s", test.flags, got)
		}
		left, err := db.Usage().Learned(t.Context())
		if err != nil || len(left) != test.left {
			t.Errorf("%s: left %v, %v", test.flags, left, err)
		}
	}
}
