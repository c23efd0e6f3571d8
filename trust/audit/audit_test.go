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
	"toolfinch/internal/must"
	"toolfinch/rawjson"
	"toolfinch/trust"
	"toolfinch/trust/audit"
)

var key = bytes.Repeat([]byte{7}, audit.KeySize)

func settings(t testing.TB) audit.Settings {
	return audit.Settings{File: filepath.Join(t.TempDir(), "audit.jsonl"), MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge, Keep: audit.DefaultKeep}
}

func open(t testing.TB, s audit.Settings) *audit.Log {
	t.Helper()
	l := must.Get(audit.Open(s, key, nil, slog.New(slog.DiscardHandler)))(t)
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
		l.Add(audit.Line{Event: trust.EventCall, Tool: fmt.Sprintf("server.tool_%d", i+1), Outcome: trust.Success})
		must.Do(t, l.Flush())
	}
	must.Do(t, l.Close())
}

func verified(t testing.TB, file string) audit.Verified {
	t.Helper()
	return must.Get(audit.Verify(key, audit.Files(file), file, ""))(t)
}

func linesOf(t testing.TB, file string) []string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
}

func TestVerifyFindsWhatWasDoneToALog(t *testing.T) {
	ln := func(lines []string, n int) string { return strings.TrimSuffix(lines[n-1], "\n") + "\n" }
	for name, test := range map[string]struct {
		forge func(lines []string) []string // 6 lines
		want  []string                      // "LINE: what"
	}{
		"nothing": {func(lines []string) []string { return lines }, nil},
		"altered": {
			func(lines []string) []string {
				lines[2] = strings.Replace(lines[2], "tool_3", "tool_x", 1)
				return lines
			},
			[]string{"3: the line was altered (line 3 of the log): its hash is not that of its text"},
		},
		"first altered": {
			func(lines []string) []string {
				lines[0] = strings.Replace(lines[0], "tool_1", "tool_x", 1)
				return lines
			},
			[]string{"1: the line was altered: its hash is not that of its text"},
		},
		"no JSON": {
			func(lines []string) []string { lines[2] = "nothing\n"; return lines },
			[]string{"3: the line was altered (line 3 of the log): its hash is not that of its text"},
		},
		"removed": {
			func(lines []string) []string { return slices.Delete(lines, 2, 3) },
			[]string{"3: line 3 is missing before this line"},
		},
		"several removed": {
			func(lines []string) []string { return slices.Delete(lines, 1, 4) },
			[]string{"2: the lines 2 to 4 are missing before this line"},
		},
		"first removed": {
			func(lines []string) []string { return lines[2:] },
			[]string{"0: the lines 1 to 2 are missing, and the log did not remove them"},
		},
		"reordered": {
			func(lines []string) []string {
				lines[2], lines[3] = lines[3], lines[2]
				return lines
			},
			[]string{"4: line 3 was moved here, behind line 4"},
		},
		"inserted": {
			func(lines []string) []string {
				return slices.Insert(lines, 3, strings.Replace(ln(lines, 3), "tool_3", "tool_x", 1))
			},
			[]string{"4: a line was inserted, between the lines 3 and 4"},
		},
		"repeated": {
			func(lines []string) []string { return slices.Insert(lines, 3, ln(lines, 2)) },
			[]string{"4: line 2 is here once more, behind line 3"},
		},
		"repeated where others are missing": {
			func(lines []string) []string {
				return []string{ln(lines, 1), ln(lines, 3), ln(lines, 1), ln(lines, 4), ln(lines, 5), ln(lines, 6)}
			},
			[]string{"3: line 1 is here once more, behind line 3", "2: line 2 is missing before this line"},
		},
		"moved twice": {
			func(lines []string) []string {
				return []string{ln(lines, 1), ln(lines, 2), ln(lines, 4), ln(lines, 3), ln(lines, 3), ln(lines, 5), ln(lines, 6)}
			},
			[]string{"4: line 3 was moved here, behind line 4", "5: line 3 is here once more, behind line 4"},
		},
		"one of several moved": {
			func(lines []string) []string {
				return []string{ln(lines, 1), ln(lines, 4), ln(lines, 5), ln(lines, 3), ln(lines, 6)}
			},
			[]string{"4: line 3 was moved here, behind line 5", "2: 1 of the lines 2 to 3 are missing before this line"},
		},
		"end cut": {
			func(lines []string) []string { return append(lines[:3], strings.TrimSuffix(lines[3], "\n")) },
			[]string{"0: the lines 5 to 6 are missing at the end"},
		},
		"end cut within a line": {
			func(lines []string) []string { return append(lines[:5], lines[5][:40]) },
			[]string{"6: the line is not finished: a crash, or it was cut", "0: line 6 is missing at the end"},
		},
		"emptied": {
			func([]string) []string { return nil },
			[]string{"0: the lines 1 to 6 are missing at the end"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(t)
			written(t, s, 6)
			text := strings.Join(test.forge(linesOf(t, s.File)), "")
			if name == "end cut" {
				text += "\n"
			}
			if !strings.HasSuffix(text, "\n") && text != "" && name != "end cut within a line" {
				text += "\n"
			}
			must.Do(t, os.WriteFile(s.File, []byte(text), 0o600))
			var found []string
			for _, f := range verified(t, s.File).Findings {
				if f.File != s.File {
					t.Errorf("the file is %s", f.File)
				}
				found = append(found, fmt.Sprintf("%d: %s", f.Line, f.What))
			}
			if !slices.Equal(found, test.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestVerifyNeedsTheKeyOfTheLog(t *testing.T) {
	s := settings(t)
	written(t, s, 2)
	v, err := audit.Verify(bytes.Repeat([]byte{8}, audit.KeySize), []string{s.File}, s.File, "")
	if err != nil || len(v.Findings) != 3 { // both lines and the note of the end
		t.Errorf("%+v %v", v.Findings, err)
	}
}

// TestALogGoesOnWhereItWas ends a log in every way that a crash or a hand can leave it.
// What is missing stays visible for good.
func TestALogGoesOnWhereItWas(t *testing.T) {
	for name, test := range map[string]struct {
		leave   func(t *testing.T, file string)
		files   int
		says    string // of an audit.repaired line
		finding string
	}{
		"as it was": {func(*testing.T, string) {}, 1, "", ""},
		"unfinished line": {func(t *testing.T, file string) {
			appendTo(t, file, `{"time":"20`)
		}, 1, "the last line was not finished", ""},
		"cut": {func(t *testing.T, file string) {
			lines := linesOf(t, file)
			rewrite(t, file, strings.Join(lines[:1], ""))
		}, 1, "lines are missing at the end", "the lines 2 to 3 are missing"},
		"removed": {func(t *testing.T, file string) {
			must.Do(t, os.Remove(file))
		}, 1, "lines are missing at the end", "the lines 1 to 3 are missing, and"},
		"a stranger's line at the end": {func(t *testing.T, file string) {
			appendTo(t, file, "{}\n")
		}, 2, "it was put aside", "a line was inserted"},
		"no note of the end": {func(t *testing.T, file string) {
			must.Do(t, os.Remove(file+".head"))
		}, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(t)
			written(t, s, 3)
			test.leave(t, s.File)
			written(t, s, 2)
			files := audit.Files(s.File)
			if len(files) != test.files {
				t.Errorf("files: %v", files)
			}
			said := ""
			err := audit.Scan(files, audit.Filter{Event: trust.EventRepaired}, func(l *audit.Line, _ []byte) error {
				said += l.Details["what"]
				return nil
			})
			if err != nil || !strings.Contains(said, test.says) || test.says == "" && said != "" {
				t.Errorf("the log says %q (%v), not %q", said, err, test.says)
			}
			v := verified(t, s.File)
			switch {
			case test.finding == "" && len(v.Findings) > 0:
				t.Errorf("findings: %v", v.Findings)
			case test.finding != "" && (len(v.Findings) != 1 || !strings.Contains(v.Findings[0].What, test.finding)):
				t.Errorf("findings: %v, not %q", v.Findings, test.finding)
			}
		})
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

// TestFilesAreRotatedAndTheChainGoesOn: a file is full with the line that reaches the size.
func TestFilesAreRotatedAndTheChainGoesOn(t *testing.T) {
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
	v := verified(t, s.File)
	if len(v.Findings) > 0 || v.First <= 1 || !strings.Contains(v.Begins, "by the log itself") {
		t.Errorf("%+v", v)
	}
	must.Do(t, os.Remove(files[0]))
	if v := verified(t, s.File); len(v.Findings) != 1 || !strings.Contains(v.Findings[0].What, "the log did not remove them") {
		t.Errorf("an old file was removed: %+v", v)
	}
	must.Do(t, os.Remove(files[2]))
	if v := verified(t, s.File); len(v.Findings) == 0 || !strings.Contains(v.Findings[0].What, "missing before this line") {
		t.Errorf("a file between others was removed: %+v", v)
	}
}

// Files beside a log that are called nearly so are no part of it.
func TestOnlyFilesOfTheLogAreRead(t *testing.T) {
	s := settings(t)
	written(t, s, 1)
	dir := filepath.Dir(s.File)
	for _, name := range []string{
		"audit-20260101T000000Z-7.txt", "other-20260101T000000Z-7.jsonl", "audit-yesterday-7.jsonl", "audit-20260101T000000Z.jsonl", "audit-20260101T000000Z-0.jsonl", "audit-20260101T000000Z-x.jsonl",
	} {
		rewrite(t, filepath.Join(dir, name), "{}\n")
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, "audit-20260101T000000Z-8.jsonl"), 0o700))
	if files := audit.Files(s.File); !slices.Equal(files, []string{s.File}) {
		t.Errorf("%q", files)
	}
}

// Whoever noted a line and its hash elsewhere learns whether the log still has it.
func TestVerifyFindsTheLineThatWasNoted(t *testing.T) {
	s := settings(t)
	written(t, s, 3)
	v := verified(t, s.File)
	for noted, findings := range map[string]int{fmt.Sprintf("%d:%s", v.Last, v.Hash): 0, fmt.Sprintf("2:%s", v.Hash): 1, fmt.Sprintf("%d:%s", v.Last, strings.Repeat("0", 64)): 1} {
		if got, err := audit.Verify(key, audit.Files(s.File), s.File, noted); err != nil || len(got.Findings) != findings {
			t.Errorf("%s: %+v, %v", noted, got.Findings, err)
		}
	}
}

func TestAFileIsRotatedByItsAge(t *testing.T) {
	s := settings(t)
	s.MaxAge = time.Nanosecond
	written(t, s, 3)
	if files := audit.Files(s.File); len(files) != 3 {
		t.Errorf("files: %v", files)
	}
	if v := verified(t, s.File); len(v.Findings) > 0 || v.Lines != 3 {
		t.Errorf("%+v", v)
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
				l.Add(audit.Line{Event: trust.EventCall, Outcome: trust.Success})
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
	if v := verified(t, s.File); len(v.Findings) > 0 || v.Lines != writers*each || v.Last != writers*each {
		t.Errorf("%+v", v)
	}
}

// running is a log that runs; stop ends and closes it.
func running(t *testing.T, s audit.Settings) (l *audit.Log, ctx context.Context, stop func()) {
	t.Helper()
	l = open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	return l, ctx, func() {
		t.Helper()
		cancel()
		<-ended
		must.Do(t, l.Close())
	}
}

func TestRunWritesAndClosesEverything(t *testing.T) {
	s := settings(t)
	l, ctx, stop := running(t, s)
	const calls = 10_000
	for range calls {
		must.Do(t, l.Admit(ctx))
		l.Add(audit.Line{Event: trust.EventCall, Outcome: trust.Success})
	}
	stop()
	if v := verified(t, s.File); len(v.Findings) > 0 || v.Lines != calls {
		t.Errorf("%+v", v)
	}
	if c := l.Counts(); c.Written != calls || c.Lost != 0 || c.Queue != 0 {
		t.Errorf("%+v", c)
	}
}

// Also while lines come without a pause.
func TestABusyLogIsSynced(t *testing.T) {
	s := settings(t)
	l, ctx, stop := running(t, s)
	await.True(t, func() bool {
		must.Do(t, l.Admit(ctx))
		l.Add(audit.Line{Event: trust.EventCall, Outcome: trust.Success})
		_, err := os.Stat(s.File + ".head")
		return err == nil
	})
	stop()
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
	l.Add(audit.Line{Event: trust.EventCall, Tool: "a.under_way", Outcome: trust.Success})
	await.True(t, func() bool { return l.Counts().Failed > 0 })
	err := l.Admit(ctx)
	if !errors.Is(err, audit.ErrUnavailable) || strings.Contains(err.Error(), filepath.Dir(s.File)) {
		t.Errorf("the error is %v", err)
	}
	back()
	await.True(t, func() bool { return l.Admit(ctx) == nil })
	cancel()
	running.Wait()
	must.Do(t, l.Close())
	if text := strings.Join(linesOf(t, s.File), ""); strings.Count(text, "a.under_way") != 1 {
		t.Errorf("the call that was under way is not written once: %s", text)
	}
	if v := verified(t, s.File); len(v.Findings) > 0 {
		t.Errorf("%+v", v)
	}
}

func TestAFullQueueWaitsOrCountsWhatIsLost(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint("drop ", drop), func(t *testing.T) {
			s := settings(t)
			if drop {
				s.Full = audit.FullDrop
			}
			l := open(t, s) // nobody writes
			const most = 5000
			n := 0
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for ; n < most && l.Admit(ctx) == nil; n++ {
				l.Add(audit.Line{Event: trust.EventCall, Outcome: trust.Success})
			}
			if (n == most) != drop {
				t.Errorf("%d calls were admitted", n)
			}
			c := l.Counts()
			if drop != (c.Lost > 0) || drop == (c.Waited > 0) || c.Queue+c.Lost != int64(n) {
				t.Errorf("%+v", c)
			}
			must.Do(t, l.Flush())
			said := 0
			err := audit.Scan([]string{s.File}, audit.Filter{Event: trust.EventLost}, func(l *audit.Line, _ []byte) error {
				said++
				if l.Details["lines"] != fmt.Sprint(c.Lost) {
					t.Errorf("the log says %v are lost of %d", l.Details, c.Lost)
				}
				return nil
			})
			if err != nil || (said == 1) != drop {
				t.Errorf("said %d times (%v)", said, err)
			}
		})
	}
}

func TestALineIsOneLineAndBounded(t *testing.T) {
	s := settings(t)
	l := open(t, s)
	long := strings.Repeat("x\n\x1b[31m\u202e\u2028", 10_000)
	ctx := trust.WithPrincipal(t.Context(), &trust.Principal{ID: "issuer|" + long, Groups: slices.Repeat([]string{long}, 100)})
	ctx = trust.WithSource(ctx, trust.Source{Address: "192.0.2.1", Transport: "http"})
	l.Record(ctx, trust.Event{
		Kind: trust.EventRefused, Client: long + " 1", Session: "the session", View: long, Server: long, Tool: long, Outcome: trust.Denied, Reason: long,
		Details: map[string]string{long: long, "command": "npx"},
	})
	must.Do(t, l.Flush())
	lines := linesOf(t, s.File)
	if len(lines) != 1 || len(lines[0]) > 64<<10 || strings.ContainsAny(lines[0], "\x1b\u202e\u2028") {
		t.Errorf("%d lines, the first of %d bytes", len(lines), len(lines[0]))
	}
	var line audit.Line
	must.Do(t, json.Unmarshal([]byte(lines[0]), &line))
	if line.SourceIP != "192.0.2.1" || line.Transport != "http" || line.Session == "" || strings.Contains(lines[0], "the session") {
		t.Errorf("%+v", line)
	}
	if v := verified(t, s.File); len(v.Findings) != 1 { // the log is open: its end is not noted
		t.Errorf("%+v", v)
	}
}

// An event names its principal, also where nobody is in the context; groups are those of the same principal only.
func TestAnEventNamesItsPrincipal(t *testing.T) {
	alice := trust.WithPrincipal(t.Context(), &trust.Principal{ID: "alice", Groups: []string{"dev"}})
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
		l.Record(test.ctx, trust.Event{Kind: trust.EventRefused, Principal: test.event})
		must.Do(t, l.Flush())
		if got := string(rawjson.Member([]byte(linesOf(t, s.File)[0]), "principal")); got != test.want {
			t.Errorf("%q in the event: %s, not %s", test.event, got, test.want)
		}
	}
}

// A note of what was not done takes no room of what is done: without room it is counted as lost.
func TestANoteTakesNoRoom(t *testing.T) {
	s := settings(t)
	l := open(t, s) // nobody writes
	l.Note(audit.Line{Event: trust.EventRefused})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for l.Admit(ended) == nil {
		l.Add(audit.Line{Event: trust.EventCall, Outcome: trust.Success})
	}
	queued := l.Counts().Queue
	l.Note(audit.Line{Event: trust.EventRefused})
	if c := l.Counts(); c.Queue != queued || c.Lost != 1 {
		t.Errorf("%+v, the queue was %d", c, queued)
	}
	must.Do(t, l.Flush())
	if first := linesOf(t, s.File)[0]; !strings.Contains(first, trust.EventRefused) {
		t.Errorf("the note is not written: %s", first)
	}
	said := ""
	err := audit.Scan([]string{s.File}, audit.Filter{Event: trust.EventLost}, func(l *audit.Line, _ []byte) error { said += l.Details["lines"]; return nil })
	if err != nil || said != "1" {
		t.Errorf("the log says that %q lines are lost, %v", said, err)
	}
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	nobody := func(*audit.Line, []byte) error { return nil }
	folder := t.TempDir()
	if err := audit.Scan([]string{folder}, audit.Filter{}, nobody); err == nil {
		t.Error("Scan reads a folder")
	}
	if _, err := audit.Last([]string{folder}, 1, audit.Filter{}, nobody); err == nil {
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
	for size, kept := range map[int]bool{1 << 20: true, 1<<20 + 1: false} {
		if got := l.Content([]byte(`"` + strings.Repeat("x", size-2) + `"`)); (got != nil) != kept {
			t.Errorf("of %d bytes %d are kept", size, len(got))
		}
	}
	masking := must.Get(audit.Open(settings(t), key, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("ghp_1"), []byte("[redacted]")) }, slog.New(slog.DiscardHandler)))(t)
	defer masking.Close()
	if got := string(masking.Content([]byte(`{"text":"ghp_1"}`))); got != `{"text":"[redacted]"}` {
		t.Errorf("masked: %s", got)
	}
}

func TestFilters(t *testing.T) {
	now := time.Now()
	line := audit.Line{
		Time: now, Event: trust.EventCall, Principal: &audit.Principal{ID: "https://idp.example|alice"}, Client: &audit.Client{Name: "Codex"},
		View: "reader", Server: "github", Tool: "github.create_issue", Name: "gh_create", Outcome: trust.Denied,
	}
	for name, test := range map[string]struct {
		filter audit.Filter
		want   bool
	}{
		"all":             {audit.Filter{}, true},
		"principal":       {audit.Filter{Principal: "*|alice"}, true},
		"other principal": {audit.Filter{Principal: "alice"}, false},
		"tool":            {audit.Filter{Tool: "github.*"}, true},
		"exposed name":    {audit.Filter{Tool: "gh_create"}, true},
		"case":            {audit.Filter{Client: "codex"}, true},
		"question mark":   {audit.Filter{Server: "gith?b"}, false},
		"whole":           {audit.Filter{Principal: "https://idp.example|alice"}, true},
		"backslash":       {audit.Filter{Tool: `github\.*`}, false},
		"slash":           {audit.Filter{Principal: "https:*"}, true},
		"client":          {audit.Filter{Client: "cursor"}, false},
		"view":            {audit.Filter{View: "writer"}, false},
		"session":         {audit.Filter{Session: "x"}, false},
		"outcome":         {audit.Filter{Outcome: "success"}, false},
		"server":          {audit.Filter{Server: "gitlab"}, false},
		"event":           {audit.Filter{Event: "tool.*", Outcome: "denied"}, true},
		"since":           {audit.Filter{Since: now}, true},
		"later":           {audit.Filter{Since: now.Add(1)}, false},
		"until":           {audit.Filter{Until: now}, false},
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
	var seqs []uint64
	take := func(l *audit.Line, _ []byte) error { seqs = append(seqs, l.Seq); return nil }
	last, err := audit.Last(audit.Files(s.File), 7, audit.Filter{}, take)
	if err != nil || last != 20 || !slices.Equal(seqs, []uint64{14, 15, 16, 17, 18, 19, 20}) {
		t.Fatalf("%v, last %d (%v)", seqs, last, err)
	}
	if last, err := audit.Last(audit.Files(s.File), 0, audit.Filter{}, take); err != nil || last != 20 || len(seqs) != 7 {
		t.Errorf("no lines: last %d, %d lines (%v)", last, len(seqs)-7, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard := make(chan uint64, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- audit.Follow(ctx, s.File, last, audit.Filter{}, func(l *audit.Line, _ []byte) error { heard <- l.Seq; return nil })
	}()
	written(t, s, 20)
	for want := uint64(21); want <= 40; want++ {
		if got := await.Value(t, heard); got != want {
			t.Fatalf("line %d, not %d", got, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
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
		must.Do(b, l.Admit(ctx))
		l.Add(audit.Line{
			Event: trust.EventCall, Principal: &audit.Principal{ID: "key|ci"}, Client: &audit.Client{Name: "codex", Version: "1"}, View: "default",
			Server: "github", Tool: "github.create_issue", Name: "github_create_issue", DefHash: strings.Repeat("a", 64), Outcome: trust.Success,
			ArgsSHA256: strings.Repeat("b", 64), BytesIn: 200, BytesOut: 2000, DurationMS: 1.5,
		})
	}
}
