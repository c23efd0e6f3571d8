//go:build unix

package hook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// sh is a program that has time enough on any machine.
func sh(line string) Program {
	return Program{Argv: []string{"sh", "-c", line}, Timeout: await.Bound}
}

func TestAProgramAnswersAnObjectWithAnObject(t *testing.T) {
	answer, err := sh(`printf '{"got":%s,"who":"%s"}\n' "$(cat)" "$WHO"`).Exchange(t.Context(), []string{"WHO=me"}, []byte(`{"n":12345678901234567890}`))
	if want := `{"got":{"n":12345678901234567890},"who":"me"}`; err != nil || string(answer) != want {
		t.Errorf("answer %s, error %v; want %s", answer, err, want)
	}
}

func TestAProgramNeedNotReadItsInput(t *testing.T) {
	answer, err := sh(`exec <&-; echo '{}'`).Exchange(t.Context(), nil, []byte(`{"big":"`+strings.Repeat("x", 1<<20)+`"}`))
	if err != nil || string(answer) != "{}" {
		t.Errorf("answer %s, error %v", answer, err)
	}
}

func TestAProgramIsFoundFromItsFolder(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "guard"), []byte("#!/bin/sh\nprintf '{\"dir\":\"%s\"}' \"$(basename \"$PWD\")\"\n"), 0o700))
	program := Program{Argv: []string{"./guard"}, Dir: dir, Timeout: await.Bound}
	if err := program.Check(); err != nil {
		t.Error(err)
	}
	answer, err := program.Exchange(t.Context(), nil, []byte(`{}`))
	if want := `{"dir":"` + filepath.Base(dir) + `"}`; err != nil || string(answer) != want {
		t.Errorf("answer %s, error %v; want %s", answer, err, want)
	}
	program.Argv[0] = "./gard"
	if program.Check() == nil {
		t.Error("a program that is not there passes the check")
	}
}

func TestWhatIsNoAnswerIsAnError(t *testing.T) {
	for _, test := range []struct {
		name    string
		program Program
		reason  string // for anybody
		log     string // must be in the text for the log
	}{
		{"a status", sh(`echo '{}'; echo "bad luck" >&2; exit 3`), "it ended with exit status 3", `(stderr: "bad luck")`},
		{"nothing", sh(`:`), "it printed nothing; a JSON object is expected on standard output, {} for no change", ""},
		{"no JSON", sh(`echo hello`), "what it printed is not one JSON object", `"hello"`},
		{"an array", sh(`echo '[]'`), "what it printed is not one JSON object", `"[]"`},
		{"two objects", sh(`echo '{}'; echo '{}'`), "what it printed is not one JSON object", ""},
		{"too slow", Program{Argv: []string{"sleep", "300"}, Timeout: 50 * time.Millisecond}, "it was killed after 50ms", ""},
		{"too much", sh(`yes`), "it answered more than 16 MB", ""},
		{"too much, deaf to the pipe", sh(`trap '' PIPE; yes; exit 0`), "it answered more than 16 MB", ""},
		{"not there", Program{Argv: []string{"/nonexistent/hook"}}, "it could not be run", "/nonexistent/hook"},
		{"not named", Program{}, "no program is named", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer, err := test.program.Exchange(t.Context(), nil, []byte(`{}`))
			var failed *Error
			if !errors.As(err, &failed) {
				t.Fatalf("answer %s, error %v", answer, err)
			}
			if failed.Reason != test.reason || !strings.Contains(err.Error(), test.log) {
				t.Errorf("reason %q, error %q; want %q and %q", failed.Reason, err, test.reason, test.log)
			}
		})
	}
}

func TestStderrIsKeptUpToABound(t *testing.T) {
	_, err := sh(`head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`).Exchange(t.Context(), nil, nil)
	var failed *Error
	if !errors.As(err, &failed) || len(failed.Stderr) != 4<<10 {
		t.Errorf("%d bytes of stderr kept, want %d", len(failed.Stderr), 4<<10)
	}
}

func TestAProgramEndsWithItsCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	done := make(chan error, 1)
	go func() {
		_, err := sh(`echo > "$STARTED"; sleep 300`).Exchange(ctx, []string{"STARTED=" + started}, nil)
		done <- err
	}()
	await.Nil(t, func() error { _, err := os.Stat(started); return err })
	cancel()
	if err := await.Value(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
