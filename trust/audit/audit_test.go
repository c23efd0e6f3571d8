package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/trust/audit"
)

func settings(t testing.TB) audit.Settings {
	return audit.Settings{File: filepath.Join(t.TempDir(), "audit.jsonl"), MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge, Keep: audit.DefaultKeep}
}

func open(t testing.TB, s audit.Settings) *audit.Log {
	t.Helper()
	l := must.Get(audit.Open(s, nil, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// written makes a log with n lines, each written by itself, and closes it.
func written(t testing.TB, s audit.Settings, n int) {
	t.Helper()
	l := open(t, s)
	for i := range n {
		l.Add(audit.Line{Event: identity.EventCall, Tool: fmt.Sprintf("server.tool_%d", i+1), Outcome: identity.Success})
		must.Do(t, l.Flush())
	}
	must.Do(t, l.Close())
}

// read are the whole lines of a log.
func read(t testing.TB, file string) (lines []audit.Line) {
	t.Helper()
	must.Do(t, audit.Scan(audit.Files(file), audit.Filter{}, func(l *audit.Line, _ []byte) error { lines = append(lines, *l); return nil }))
	return lines
}

func linesOf(t testing.TB, file string) []string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
}

// TestALogGoesOnWhereItWas ends a log in every way that a crash or a hand can leave it.
func TestALogGoesOnWhereItWas(t *testing.T) {
	for name, test := range map[string]struct {
		leave func(t *testing.T, file string)
		lines int
	}{
		"as it was":       {func(*testing.T, string) {}, 5},
		"unfinished line": {func(t *testing.T, file string) { appendTo(t, file, `{"time":"20`) }, 5},
		"cut":             {func(t *testing.T, file string) { rewrite(t, file, linesOf(t, file)[0]) }, 3},
		"removed":         {func(t *testing.T, file string) { must.Do(t, os.Remove(file)) }, 2},
		"what is no line": {func(t *testing.T, file string) { appendTo(t, file, "{}\n"+strings.Repeat("x", 2<<20)+"\n") }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(t)
			written(t, s, 3)
			test.leave(t, s.File)
			written(t, s, 2)
			if lines := read(t, s.File); len(lines) != test.lines || lines[len(lines)-1].Tool != "server.tool_2" {
				t.Errorf("%d lines, want %d: %+v", len(lines), test.lines, lines)
			}
		})
	}
}

// One process may die in a line while another has the file open.
func TestWhatACrashOfAnotherProcessLeavesSpoilsNoLine(t *testing.T) {
	s := settings(t)
	l := open(t, s)
	for n := 1; n < 4; n++ {
		must.Do(t, l.Write(audit.Line{Event: identity.EventCall, Outcome: identity.Begun}))
		if lines := read(t, s.File); len(lines) != n {
			t.Errorf("%d lines of %d", len(lines), n)
		}
		appendTo(t, s.File, `{"time":"20`)
	}
}

// While a log runs, another hand may remove its file.
func TestALogThatIsRemovedIsMadeAnew(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed")
	}
	s := settings(t)
	l := open(t, s)
	for range 2 {
		must.Do(t, l.Write(audit.Line{Event: identity.EventCall, Outcome: identity.Begun}))
		if n := len(read(t, s.File)); n != 1 {
			t.Errorf("%d lines, want the one that was just written", n)
		}
		must.Do(t, os.Remove(s.File))
	}
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	f := must.Get(os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0))(t)
	if _, err := f.WriteString(text); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
}

func rewrite(t *testing.T, file, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
}

// A file is full with the line that reaches the size.
func TestFilesAreRotatedAndTheOldestRemoved(t *testing.T) {
	s := settings(t)
	s.MaxSize, s.Keep = 1000, 3
	written(t, s, 40)
	files := audit.Files(s.File)
	if len(files) != s.Keep+1 {
		t.Fatalf("%d files: %v", len(files), files)
	}
	for _, file := range files {
		info := must.Get(os.Stat(file))(t)
		if lines := linesOf(t, file); info.Size()-int64(len(lines[len(lines)-1])) > int64(s.MaxSize) {
			t.Errorf("%s has %d bytes", file, info.Size())
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", file, info.Mode())
		}
	}
	lines := read(t, s.File)
	for i, line := range lines {
		if want := fmt.Sprintf("server.tool_%d", 40-len(lines)+i+1); line.Tool != want {
			t.Errorf("line %d is about %s, want %s", i, line.Tool, want)
		}
	}
}

// Files beside a log that are called nearly so are no part of it.
func TestOnlyFilesOfTheLogAreRead(t *testing.T) {
	s := settings(t)
	written(t, s, 1)
	dir := filepath.Dir(s.File)
	for _, name := range []string{
		"audit-20260101T000000.000Z.txt", "other-20260101T000000.000Z.jsonl", "audit-yesterday.jsonl", "audit-20260101T000000Z.jsonl", "audit-20260101T000000.000Z-1.jsonl",
	} {
		rewrite(t, filepath.Join(dir, name), "{}\n")
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "audit-20260101T000001.000Z.jsonl"), 0o700))
	if files := audit.Files(s.File); !slices.Equal(files, []string{s.File}) {
		t.Errorf("%q", files)
	}
}

func TestAFileIsRotatedByItsAge(t *testing.T) {
	s := settings(t)
	s.MaxAge = time.Nanosecond
	written(t, s, 3)
	if files := audit.Files(s.File); len(files) != 3 {
		t.Errorf("files: %v", files)
	}
	if lines := read(t, s.File); len(lines) != 3 {
		t.Errorf("%+v", lines)
	}
}

// TestSeveralWriteOneLog has several logs at one file, as several processes would.
func TestSeveralWriteOneLog(t *testing.T) {
	s := settings(t)
	s.MaxSize = 20_000
	const writers, each = 4, 100
	var all sync.WaitGroup
	for range writers {
		l := open(t, s)
		all.Go(func() {
			for range each {
				l.Add(audit.Line{Event: identity.EventCall, Outcome: identity.Success})
				await.Nil(t, func() error { // a line that waited too long for the others stays
					err := l.Flush()
					if err != nil && !strings.Contains(err.Error(), "another process has held the lock") {
						t.Error(err)
					}
					return err
				})
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(read(t, s.File)); n != writers*each {
		t.Errorf("%d lines of %d", n, writers*each)
	}
}

// running is a log that runs; stop ends and closes it.
func running(t *testing.T, s audit.Settings) (l *audit.Log, stop func()) {
	t.Helper()
	l = open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	return l, func() {
		t.Helper()
		cancel()
		<-ended
		must.Do(t, l.Close())
	}
}

func TestRunWritesAndClosesEverything(t *testing.T) {
	s := settings(t)
	l, stop := running(t, s)
	const calls = 10_000
	for range calls {
		must.Do(t, l.Admit())
		l.Add(audit.Line{Event: identity.EventCall, Outcome: identity.Success})
	}
	stop()
	if n := len(read(t, s.File)); n != calls {
		t.Errorf("%d lines of %d", n, calls)
	}
	if c := l.Counts(); c.Written != calls || c.Lost != 0 {
		t.Errorf("%+v", c)
	}
}

// unwritable takes the folder of a log away, and returns what gives it back.
func unwritable(t *testing.T, file string) (back func()) {
	t.Helper()
	dir := filepath.Dir(file)
	away := dir + ".away"
	must.Do(t, os.Rename(dir, away))
	return func() {
		must.Do(t, os.Rename(away, dir))
	}
}

func TestWhatCannotBeWrittenIsNotDone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file's folder cannot be renamed")
	}
	s := settings(t)
	l := open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	defer running.Wait()
	defer cancel()

	back := unwritable(t, s.File)
	l.Add(audit.Line{Event: identity.EventCall, Tool: "a.under_way", Outcome: identity.Success})
	await.True(t, func() bool { return l.Counts().Failed > 0 })
	err := l.Admit()
	if !errors.Is(err, audit.ErrUnavailable) || strings.Contains(err.Error(), filepath.Dir(s.File)) {
		t.Errorf("the error is %v", err)
	}
	back()
	await.True(t, func() bool { return l.Admit() == nil })
	cancel()
	running.Wait()
	must.Do(t, l.Close())
	if text := strings.Join(linesOf(t, s.File), ""); strings.Count(text, "a.under_way") != 1 {
		t.Errorf("the call that was under way is not written once: %s", text)
	}
}

// What is to be written before it is done is in the file by then, or is not done.
func TestWhatMayChangeSomethingIsWrittenBefore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file's folder cannot be renamed")
	}
	s := settings(t)
	l := open(t, s)
	begun := audit.Line{Event: identity.EventCall, Outcome: identity.Begun}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := l.Write(begun); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(read(t, s.File)); n != 20 {
		t.Errorf("%d lines of 20", n)
	}
	back := unwritable(t, s.File)
	if err := l.Write(begun); !errors.Is(err, audit.ErrUnavailable) {
		t.Errorf("%v, want %v", err, audit.ErrUnavailable)
	}
	back()
	must.Do(t, l.Flush()) // as Run does after a while
	must.Do(t, l.Write(begun))
}

func TestALineIsOneLineAndBounded(t *testing.T) {
	s := settings(t)
	l := open(t, s)
	long := strings.Repeat("x\n\x1b[31m\u202e\u2028", 10_000)
	ctx := identity.WithPrincipal(t.Context(), &identity.Principal{ID: "issuer|" + long, Groups: slices.Repeat([]string{long}, 100)})
	ctx = identity.WithSource(ctx, identity.Source{Address: "192.0.2.1", Transport: "http"})
	l.Record(ctx, identity.Event{
		Kind: identity.EventRefused, Client: long + " 1", Session: "the session", View: long, Server: long, Tool: long, Outcome: identity.Denied, Reason: long,
		Details: map[string]string{long: long, "command": "npx"},
	})
	must.Do(t, l.Flush())
	lines := linesOf(t, s.File)
	if len(lines) != 1 || len(lines[0]) > 64<<10 || strings.ContainsAny(lines[0], "\x1b\u202e\u2028") {
		t.Errorf("%d lines, the first of %d bytes", len(lines), len(lines[0]))
	}
	var line audit.Line
	must.Do(t, json.Unmarshal([]byte(lines[0]), &line))
	l.Add(audit.Line{Event: identity.EventCall, Outcome: identity.Denied, Decision: &audit.Decision{Policy: long}})
	must.Do(t, l.Flush())
	if decided := linesOf(t, s.File)[1]; len(decided) > 4<<10 || strings.ContainsAny(decided, "\x1b\u202e\u2028") {
		t.Errorf("a decision has %d bytes", len(decided))
	}
	if line.SourceIP != "192.0.2.1" || line.Transport != "http" || line.Session == "" || strings.Contains(lines[0], "the session") {
		t.Errorf("%+v", line)
	}
}

// An event names its principal, also where nobody is in the context; groups are those of the same principal only.
func TestAnEventNamesItsPrincipal(t *testing.T) {
	alice := identity.WithPrincipal(t.Context(), &identity.Principal{ID: "alice", Groups: []string{"dev"}})
	for _, test := range []struct {
		ctx   context.Context
		event string
		want  string
	}{
		{t.Context(), "", ""}, {t.Context(), "key|ci", `{"id":"key|ci"}`}, {alice, "", `{"id":"alice","groups":["dev"]}`},
		{alice, "alice", `{"id":"alice","groups":["dev"]}`}, {alice, "key|ci", `{"id":"key|ci"}`},
	} {
		s := settings(t)
		l := open(t, s)
		l.Record(test.ctx, identity.Event{Kind: identity.EventRefused, Principal: test.event})
		must.Do(t, l.Flush())
		if got := string(rawjson.Member([]byte(linesOf(t, s.File)[0]), "principal")); got != test.want {
			t.Errorf("%q in the event: %s, not %s", test.event, got, test.want)
		}
	}
}

// While nothing can be written, a note of what was not done is counted as lost; the lines of calls that were under way are kept.
func TestWhatWasNotDoneIsNotKept(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file's folder cannot be renamed")
	}
	s := settings(t)
	l := open(t, s)
	l.Note(audit.Line{Event: identity.EventRefused})
	back := unwritable(t, s.File)
	for range 3 {
		l.Add(audit.Line{Event: identity.EventCall, Outcome: identity.Success})
	}
	l.Note(audit.Line{Event: identity.EventRefused})
	back()
	must.Do(t, l.Flush())
	var got []string
	for _, line := range read(t, s.File) {
		got = append(got, strings.TrimSpace(line.Event+" "+line.Details["lines"]))
	}
	if want := []string{identity.EventRefused, identity.EventCall, identity.EventCall, identity.EventCall, identity.EventLost + " 1"}; !slices.Equal(got, want) || l.Counts().Lost != 1 {
		t.Errorf("%q, want %q; %+v", got, want, l.Counts())
	}
}

// What nothing can be written of is bounded.
func TestWhatIsKeptIsBounded(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file's folder cannot be renamed")
	}
	const most = 65_536
	s := settings(t)
	l := open(t, s)
	back := unwritable(t, s.File)
	for range most + 10 {
		l.Add(audit.Line{Event: identity.EventCall, Outcome: identity.Success})
	}
	back()
	must.Do(t, l.Flush())
	if c := l.Counts(); c.Lost != 10 || c.Written != most+1 { // and the line about those
		t.Errorf("%+v", c)
	}
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	nobody := func(*audit.Line, []byte) error { return nil }
	folder := t.TempDir()
	if err := audit.Scan([]string{folder}, audit.Filter{}, nobody); err == nil {
		t.Error("Scan reads a folder")
	}
	if err := audit.Last([]string{folder}, 1, audit.Filter{}, nobody); err == nil {
		t.Error("Last reads a folder")
	}
	if err := audit.Scan([]string{filepath.Join(folder, "gone")}, audit.Filter{}, nobody); err != nil {
		t.Errorf("a file that was removed meanwhile: %v", err)
	}
}

func TestContentsAreRedactedAndCut(t *testing.T) {
	l := open(t, settings(t))
	for name, test := range map[string]struct{ value, want string }{
		"as it is":   {` {"a": [1, {"b": "c"}]} `, `{"a":[1,{"b":"c"}]}`},
		"secrets":    {`{"password":"hunter2","nested":[{"API_KEY":"x","authorization":{"a":1}}],"user":"me","token":null}`, `{"password":"***","nested":[{"API_KEY":"***","authorization":"***"}],"user":"me","token":null}`},
		"deep":       {strings.Repeat("[", 65) + `"a",[1]` + strings.Repeat("]", 65), strings.Repeat("[", 65) + `"***","***"` + strings.Repeat("]", 65)},
		"one line":   {"{\n\"a\":\n1}", `{"a":1}`},
		"no JSON":    {`{"a":`, ``},
		"text alone": {`"text"`, `"text"`},
	} {
		if got := string(l.Content([]byte(test.value))); got != test.want {
			t.Errorf("%s: %s, not %s", name, got, test.want)
		}
	}
	if got := l.Content([]byte(`{"a":"` + strings.Repeat("é", 10_000) + `"}`)); len(got) > 5<<10 || !json.Valid(got) || got[0] != '"' {
		t.Errorf("a long one has %d bytes: %.40s", len(got), got)
	}
	for size, whole := range map[int]bool{4 << 10: true, 4<<10 + 1: false} {
		value := `["` + strings.Repeat("x", size-4) + `"]`
		if got := string(l.Content([]byte(value))); (got == value) != whole || !whole && !strings.HasSuffix(got, `..."`) {
			t.Errorf("%d bytes: %.20s of %d bytes", size, got, len(got))
		}
	}
	for size, kept := range map[int]bool{1 << 20: true, 1<<20 + 1: false} {
		if got := l.Content([]byte(`"` + strings.Repeat("x", size-2) + `"`)); (got != nil) != kept {
			t.Errorf("of %d bytes %d are kept", size, len(got))
		}
	}
	masking := must.Get(audit.Open(settings(t), func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("ghp_1"), []byte("[redacted]")) }, slog.New(slog.DiscardHandler)))(t)
	defer masking.Close()
	if got := string(masking.Content([]byte(`{"text":"ghp_1"}`))); got != `{"text":"[redacted]"}` {
		t.Errorf("masked: %s", got)
	}
}

// Where there is no audit log, nothing is written and everything is admitted.
func TestNoLogIsALog(t *testing.T) {
	var l *audit.Log
	l.Add(audit.Line{})
	l.Note(audit.Line{})
	l.Record(t.Context(), identity.Event{})
	if err := errors.Join(l.Admit(), l.Close()); err != nil || l.Content([]byte(`{}`)) != nil {
		t.Error(err)
	}
}

func TestFilters(t *testing.T) {
	now := time.Now()
	line := audit.Line{
		Time: now, Event: identity.EventCall, Principal: &audit.Principal{ID: "https://idp.example|alice"}, Client: &audit.Client{Name: "Codex"},
		View: "reader", Server: "github", Tool: "github.create_issue", Name: "gh_create", Outcome: identity.Denied,
	}
	for name, test := range map[string]struct {
		filter audit.Filter
		want   bool
	}{
		"all":             {audit.Filter{}, true},
		"principal":       {audit.Filter{Principal: "*|alice"}, true},
		"other principal": {audit.Filter{Principal: "alice"}, false},
		"tool":            {audit.Filter{Tool: "github.*"}, true},
		"case":            {audit.Filter{Tool: "GitHub.*"}, true},
		"exposed name":    {audit.Filter{Tool: "gh_create"}, true},
		"question mark":   {audit.Filter{Tool: "gith?b*"}, false},
		"whole":           {audit.Filter{Principal: "https://idp.example|alice"}, true},
		"backslash":       {audit.Filter{Tool: `github\.*`}, false},
		"slash":           {audit.Filter{Principal: "https:*"}, true},
		"outcome":         {audit.Filter{Outcome: "success"}, false},
		"event":           {audit.Filter{Event: "tool.*", Outcome: "denied"}, true},
		"since":           {audit.Filter{Since: now}, true},
		"later":           {audit.Filter{Since: now.Add(1)}, false},
		"no pattern":      {audit.Filter{Tool: "github.[a-z]*"}, false},
	} {
		if got := test.filter.Wants(&line); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestLastAndFollowReadAcrossRotation(t *testing.T) {
	s := settings(t)
	s.MaxSize = 1000
	written(t, s, 20)
	var tools []string
	take := func(l *audit.Line, _ []byte) error {
		tools = append(tools, strings.TrimPrefix(l.Tool, "server.tool_"))
		return nil
	}
	if err := audit.Last(audit.Files(s.File), 7, audit.Filter{}, take); err != nil || strings.Join(tools, " ") != "14 15 16 17 18 19 20" {
		t.Fatalf("%v, %v", tools, err)
	}
	if err := audit.Last(audit.Files(s.File), 0, audit.Filter{}, take); err != nil || len(tools) != 7 {
		t.Errorf("no lines: %d, %v", len(tools)-7, err)
	}
	for name, test := range map[string]struct {
		there  bool // before it is followed
		rotate bool // before the first look
	}{"there": {there: true}, "there, and rotated": {there: true, rotate: true}, "made later": {}, "made later, and rotated": {rotate: true}} {
		t.Run(name, func(t *testing.T) {
			s := s
			s.File = filepath.Join(t.TempDir(), "audit.jsonl")
			if test.there {
				written(t, s, 20)
			}
			followed := must.Get(audit.Follow(s.File))(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			heard := make(chan string, 100)
			ended := make(chan error, 1)
			if test.rotate {
				written(t, s, 20)
			}
			go func() {
				ended <- followed.Run(ctx, audit.Filter{}, func(l *audit.Line, _ []byte) error { heard <- l.Tool; return nil })
			}()
			if !test.rotate {
				written(t, s, 20)
			}
			for want := range 20 {
				if got := await.Value(t, heard); got != fmt.Sprintf("server.tool_%d", want+1) {
					t.Fatalf("line %d is about %s", want+1, got)
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func BenchmarkCall(b *testing.B) {
	l := open(b, settings(b))
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for b.Loop() {
		must.Do(b, l.Admit())
		l.Add(audit.Line{
			Event: identity.EventCall, Principal: &audit.Principal{ID: "key|ci"}, Client: &audit.Client{Name: "codex", Version: "1"}, View: "default",
			Server: "github", Tool: "github.create_issue", Name: "github_create_issue", DefHash: strings.Repeat("a", 64), Outcome: identity.Success,
			ArgsSHA256: strings.Repeat("b", 64), BytesIn: 200, BytesOut: 2000, DurationMS: 1.5,
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	l := open(b, settings(b))
	for b.Loop() {
		must.Do(b, l.Write(audit.Line{Event: identity.EventCall, Outcome: identity.Begun}))
	}
}
