package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// shell runs a script in a sandbox and returns what it printed.
func shell(t *testing.T, s Settings, dir, script string) string {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	path, args, env, err := s.Command(path, []string{"sh", "-c", script}, []string{"PATH=" + os.Getenv("PATH"), "SEEN=yes"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Dir: dir}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// supported skips where the kernel has no Landlock: that is the kernel's, not the machine's setup.
func supported(t *testing.T, rules *Rules) Settings {
	t.Helper()
	s := Settings{Landlock: rules}
	if err := s.Check(); err != nil {
		t.Skip(err)
	}
	return s
}

func TestAProcessTouchesOnlyWhatItMay(t *testing.T) {
	mine, others := t.TempDir(), t.TempDir()
	for _, dir := range []string{mine, others} {
		must.Do(t, os.WriteFile(filepath.Join(dir, "note"), []byte("hello\n"), 0o600))
	}
	note := filepath.Join(others, "note")
	for _, test := range []struct {
		what, script, want string
		rules              Rules
	}{
		{"reads its folder", "cat note", "hello\n", Rules{Read: []string{mine}}},
		{"reads no other", "cat " + note, "denied", Rules{Read: []string{mine}}},
		{"nor by a link", "ln -s " + note + " link; cat link", "denied", Rules{Read: []string{mine}, Write: []string{mine}}},
		{"nor the list of it", "ls " + others, "denied", Rules{Read: []string{mine}}},
		{"nor what it starts", "sh -c 'cat " + note + "'", "denied", Rules{Read: []string{mine}}},
		{"reads all without a list", "cat " + note, "hello\n", Rules{}},
		{"changes nothing", "echo x > new", "denied", Rules{Read: []string{mine}}},
		{"not even by shortening", "truncate -s 0 note 2>/dev/null; cat note", "hello\n", Rules{Read: []string{mine}}},
		{"changes what it may", "echo x > new && mkdir d && mv new d/new && cat d/new", "x\n", Rules{Write: []string{mine}}},
		{"but no other", "echo x > " + note, "denied", Rules{Write: []string{mine}}},
		{"moves nothing out", "mv note " + others + "/moved", "denied", Rules{Write: []string{mine}}},
		{"a file alone", "cat " + note + "; echo y >> " + note + " && cat " + note, "hello\nhello\ny\n", Rules{Read: []string{}, Write: []string{note}}},
		{"asks no other process for its secrets", "cat /proc/$PPID/environ", "denied", Rules{}},
		{"has no capability of root but for files", "while read -r name set; do [ $name = CapEff: ] && echo $((0x$set & ~0xdb)); done < /proc/self/status", "0\n", Rules{}},
		{"throws away", "echo x > /dev/null && echo done", "done\n", Rules{Read: []string{}}},
		{"has its variables, and not ours", "echo $SEEN$" + childVariable, "yes\n", Rules{}},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := supported(t, &test.rules)
			got := shell(t, s, mine, test.script)
			if test.want == "denied" && strings.Contains(got, "ermission denied") && !strings.Contains(got, "hello") {
				return
			}
			if got != test.want {
				t.Errorf("%s: %q, want %q", test.script, got, test.want)
			}
		})
	}
}

func TestWhatCannotBeLimitedIsNotStarted(t *testing.T) {
	missing := Settings{Landlock: supported(t, &Rules{}).Landlock, Optional: true}
	missing.Landlock.Write = []string{filepath.Join(t.TempDir(), "missing")}
	_, _, _, err := missing.Command("/bin/sh", []string{"sh"}, nil)
	if err == nil || errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `"missing", which is not there`) {
		t.Errorf("a folder that is not there: %v", err)
	}
	gone := t.TempDir()
	path, args, env, err := Settings{Landlock: &Rules{Write: []string{gone}}}.Command("/bin/sh", []string{"sh", "-c", "echo started"}, nil)
	must.Do(t, errors.Join(err, os.Remove(gone)))
	out, err := (&exec.Cmd{Path: path, Args: args, Env: env}).CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "sandbox: its limits were refused: ") {
		t.Errorf("a folder that has gone meanwhile: %q, %v", out, err)
	}
	s := Settings{Wrapper: []string{"no-such-program", "--"}}
	if _, _, _, err := s.Command("/bin/sh", []string{"sh"}, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a wrapper that is not there: %v", err)
	}
}

func TestAWrapperStandsInFront(t *testing.T) {
	s := Settings{Wrapper: []string{"env", "WRAPPED=yes"}}
	if got := shell(t, s, "", "echo $WRAPPED $SEEN"); got != "yes yes\n" {
		t.Errorf("got %q", got)
	}
}

func TestItIsSaidWhatAProcessMayTouch(t *testing.T) {
	for want, s := range map[string]Settings{
		"all that you may":                                            {},
		"what bwrap --ro-bind / / lets it":                            {Wrapper: []string{"bwrap", "--ro-bind", "/", "/"}},
		"reads all files; writes none; connects to any port":          {Landlock: &Rules{}},
		"reads programs, /a; writes /b, /c; connects to no port":      {Landlock: &Rules{Read: []string{"/a"}, Write: []string{"/b", "/c"}, Ports: []int{}}},
		"reads programs; writes none; connects to TCP port 443, 8443": {Landlock: &Rules{Read: []string{}, Ports: []int{443, 8443}}},
	} {
		if got := s.String(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
