//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestListKeepsWhatIsUsable(t *testing.T) {
	p := newPool(t, lines(t, "raw", "raw"), lines(t, "pages", "pages"))
	change := p.Refresh(t.Context(), "raw")
	if change.Err != nil || len(change.Defs) != lineTools || change.Instructions != "be kind" || change.Era != EraLegacy {
		t.Fatalf("change = %+v", change)
	}
	if got, want := string(change.Defs[0].Raw), `{"name":"raw","x":12345678901234567890,"inputSchema":{"type":"object"}}`; got != want {
		t.Errorf("definition = %s, want %s", got, want)
	}
	change = p.Refresh(t.Context(), "pages")
	var names []string
	for _, d := range change.Defs {
		names = append(names, d.ID.Name)
	}
	// Five pages; on each one name again, one definition without and one that is none.
	if got := strings.Join(names, " "); got != "p0 p1 p2 p3 p4" || change.Faults.LeftOut != 15 {
		t.Errorf("defs %s, rejected %v (error %v)", got, change.Faults, change.Err)
	}
	if change = p.Refresh(t.Context(), "none"); !errors.Is(change.Err, ErrUnknownServer) {
		t.Errorf("error = %v", change.Err)
	}
}

func TestCallsAndAnswersKeepTheirBytes(t *testing.T) {
	p := newPool(t, lines(t, "s", "raw"))
	if got, err := ask(t, p, "s", "raw"); err != nil || got != strange {
		t.Errorf("result = %s, %v\nwant %s", got, err, strange)
	}
	_, err := ask(t, p, "s", "fail")
	var rpc *tool.RPCError
	if want := `{"code":-31999,"message":"no","data":{"big":12345678901234567890},"more":1}`; !errors.As(err, &rpc) || string(rpc.Raw) != want || rpc.Code != -31999 {
		t.Errorf("error = %v, want %s", err, want)
	}
	got, err := p.Call(t.Context(), def("s", "params"), &tool.Call{
		Arguments: json.RawMessage(`{"n":123456789012345678901,"<":">"}`),
		Params:    json.RawMessage(`{"_meta":{"k":1.0,"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"s_params","future":[1],"arguments":{"old":1}}`),
	})
	want := `{"params":{"name":"params","arguments":{"n":123456789012345678901,"<":">"},"_meta":{"k":1.0},"future":[1]}}`
	if err != nil || untold(got) != want {
		t.Errorf("params = %s, %v\nwant %s", got, err, want)
	}
	mustAsk(t, p, "s", "text_id", "ok")
}

func TestProgressReachesTheCallThatAskedForIt(t *testing.T) {
	p := newPool(t, lines(t, "s", "raw"))
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			var mu sync.Mutex
			var got []string
			params := fmt.Sprintf(`{"_meta":{"progressToken":"same","mine":%d}}`, i)
			_, err := p.Call(t.Context(), def("s", "progress"), &tool.Call{Params: json.RawMessage(params),
				Notify: func(method string, params json.RawMessage) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, method+" "+string(params))
				}})
			mu.Lock()
			defer mu.Unlock()
			want := `notifications/progress {"progressToken":"same","progress":2,"total":9007199254740993}`
			if err != nil || len(got) != 3 || got[2] != want {
				t.Errorf("call %d: %v, %v", i, got, err)
			}
		})
	}
	calls.Wait()

	var logged string
	_, err := p.Call(t.Context(), def("s", "log"), &tool.Call{Notify: func(method string, params json.RawMessage) { logged = method + string(params) }})
	if want := `notifications/message{"level":"info","data":12345678901234567890}`; err != nil || logged != want {
		t.Errorf("logged %s, %v; want %s", logged, err, want)
	}
}

func TestAHangingCallEndsAndIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lines(t, "s", "raw")
		s.CallTimeout = time.Second
		p := newPool(t, s)
		_, err := ask(t, p, "s", "hang")
		wantError(t, err, "s", ErrTimeout)
		if id, cancelled := trace(t, s, "hangs"), trace(t, s, "cancelled"); id != cancelled {
			t.Errorf("request %s hung, %s was cancelled", id, cancelled)
		}
		mustAsk(t, p, "s", "raw", "hologram") // the connection is still good

		stageOf(s).take("cancelled")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		_, err = p.Call(ctx, def("s", "hang"), &tool.Call{})
		wantError(t, err, "s", context.Canceled)
		trace(t, s, "cancelled")
		if n := started(s); n != 1 {
			t.Errorf("it was started %d times", n)
		}
	})
}

// A child that is killed takes what it has started with it, and the next call has another.
func TestAKilledChildIsUsableOnTheNextCall(t *testing.T) {
	p := newPool(t, child(t, "s", "parent"))
	grandchild := pidOf(t, p, "s")
	must.Do(t, syscall.Kill(p.Status()[0].PID, syscall.SIGKILL))
	await.True(t, func() bool { return !running(grandchild) }) // reaped: no zombie
	second := pidOf(t, p, "s")
	must.Do(t, p.Close(t.Context()))
	await.True(t, func() bool { return !running(second) })
}

func TestAChildThatDiesInACall(t *testing.T) {
	p := newPool(t, lines(t, "s", "raw"))
	_, err := ask(t, p, "s", "exit")
	wantError(t, err, "s", ErrClosed)
	mustAsk(t, p, "s", "raw", "hologram")

	// What may be repeated is, once.
	if got, err := ask(t, p, "s", "exit_once", "idempotentHint"); err != nil || got != `{"ok":true}` {
		t.Errorf("exit_once = %s, %v", got, err)
	}
	_, err = ask(t, p, "s", "exit", "readOnlyHint")
	wantError(t, err, "s", ErrClosed)
}

func TestOtherCallsGoOnBesideAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, lines(t, "s", "garbage"))
		for name, is := range map[string]error{"other_id": ErrTimeout, "nothing": nil} {
			_, err := ask(t, p, "s", name)
			wantError(t, err, "s", is)
			mustAsk(t, p, "s", "raw", "hologram")
		}
	})
}

func TestAChildThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, lines(t, "s", "deaf"))
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				big := json.RawMessage(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`)
				_, err := p.Call(t.Context(), def("s", "raw"), &tool.Call{Arguments: big})
				wantError(t, err, "s", nil)
			})
		}
		calls.Wait()
	})
}

func TestAServerThatHangsOrCrashesDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crash := lines(t, "crash", "crash")
		p := newPool(t, lines(t, "mute", "mute"), crash, lines(t, "good", "raw"), Settings{Name: "none", Command: "no-such-program"})
		changes, stop := watched(t, p)
		for seen := map[string]bool{}; len(seen) < 3; {
			change := <-changes
			if change.Err == nil != (change.Server == "good") {
				t.Errorf("%s: error %v", change.Server, change.Err)
			}
			if change.Server == "none" && !strings.Contains(change.Err.Error(), "no-such-program") {
				t.Errorf("error = %v, want it to name the program", change.Err)
			}
			seen[change.Server] = true
		}
		states := map[string]State{}
		for _, s := range p.Status() {
			states[s.Server] = s.State
		}
		if want := map[string]State{"mute": StatePending, "crash": StateFailed, "good": StateReady, "none": StateFailed}; fmt.Sprint(states) != fmt.Sprint(want) {
			t.Errorf("states = %v, want %v", states, want)
		}
		time.Sleep(time.Minute)
		if n := started(crash); n < 7 || n > 15 {
			t.Errorf("the crashing server was started %d times in a minute", n)
		}
		_, err := ask(t, p, "crash", "raw")
		wantError(t, err, "crash", nil)
		stop()
		_, err = ask(t, p, "good", "raw")
		wantError(t, err, "good", ErrClosed)
	})
}

func TestListChangedListsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, lines(t, "s", "raw"))
		changes, _ := watched(t, p)
		if change := <-changes; len(change.Defs) != lineTools {
			t.Fatalf("change = %+v", change)
		}
		began := time.Now()
		var calls sync.WaitGroup // each waits for Change.Served
		defer calls.Wait()
		for range 10 { // together they are one change
			calls.Go(func() { mustAsk(t, p, "s", "change", "ok") })
			time.Sleep(debounce * 3 / 4)
		}
		if change := <-changes; len(change.Defs) != lineTools+1 || time.Since(began) != 9*debounce*3/4+debounce {
			t.Errorf("%d tools after the change, after %s: %v", len(change.Defs), time.Since(began), change.Err)
		}
		began = time.Now()
		for len(changes) == 0 { // but they do not put it off for ever
			calls.Go(func() { mustAsk(t, p, "s", "change", "ok") })
			time.Sleep(debounce * 3 / 4)
			synctest.Wait()
		}
		if put := time.Since(began); put > debounceMost+debounce {
			t.Errorf("a list was put off for %s", put)
		}
		time.Sleep(2 * debounce)
		for len(changes) > 0 {
			<-changes
		}
		// A child that dies is brought back without a call, and listed.
		_, err := ask(t, p, "s", "exit")
		wantError(t, err, "s", ErrClosed)
		if change := <-changes; len(change.Defs) != lineTools {
			t.Errorf("after the restart: %+v", change)
		}
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	cycle := func() {
		own := newAsker(t, "asker")
		own.Isolate = IsolateAlways
		p := newPool(t, child(t, "a", "raw"), child(t, "b", "crash"), lines(t, "c", "mute"), own)
		_, stop := watched(t, p)
		mustAsk(t, p, "a", "raw", "hologram")
		for _, key := range []string{"1", "2", "3"} {
			mustCallAs(t, p, asked(key), "ask", question)
		}
		p.Forget("2")
		stop()
	}
	cycle()
	files := openFiles(t)
	await.NoLeak(t, cycle)
	await.True(t, func() bool { return openFiles(t) <= files })
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // not on this system
	}
	return len(entries)
}

// running reports whether the process is there and no zombie that waits for
// an init, which containers may not have.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// What clients may see of a command that does not start says nothing of where it
// is. The log does.
func TestErrorsOfCommandsHoldNoPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "no-program")
	must.Do(t, os.WriteFile(file, []byte("text"), 0o600))
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here")
	}
	script := filepath.Join(dir, "script")
	must.Do(t, os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700))
	for _, test := range []struct {
		name   string
		s      Settings
		want   string
		logged string
	}{
		{"its interpreter is not there", Settings{Command: script}, `the command "script" cannot be started: the interpreter that its first line names is not there`, script},
		{"it is not there", Settings{Command: filepath.Join(dir, "absent")}, `the command "absent" cannot be started: no such file or directory`, filepath.Join(dir, "absent")},
		{"it may not be run", Settings{Command: file}, `the command "no-program" cannot be started: permission denied`, file},
		{"its directory is not there", Settings{Command: shell, Cwd: filepath.Join(dir, "gone")},
			`the command "sh" cannot be started: there is no such working directory`, filepath.Join(dir, "gone")},
		{"its directory is none", Settings{Command: shell, Cwd: file}, `the command "sh" cannot be started: there is no such working directory`, file},
		{"it is beside its directory", Settings{Command: "./absent", Cwd: dir}, `the command "absent" cannot be started: no such file or directory`, dir},
		{"its arguments stand in it", Settings{Command: shell + " " + dir + "/x.sh ab"},
			`the command "sh" cannot be started with its arguments in it: write them under args`, dir},
		{"its arguments stand in it, and it is on the PATH", Settings{Command: "sh " + dir + "/x.sh ab"},
			`the command "sh" cannot be started with its arguments in it: write them under args`, dir},
		{"it has a space in its name", Settings{Command: filepath.Join(dir, "no program")}, `the command "no program" cannot be started: no such file or directory`, dir},
		{"its arguments and environment are secret", Settings{Command: filepath.Join(dir, "absent"), Args: []string{dir}, Env: map[string]string{"D": dir}},
			`the command "absent" cannot be started: no such file or directory`, dir},
		{"it is no URL", Settings{URL: "http://user:" + dir + "@host\x7f/"}, "the configured URL is none", ""},
		{"it is no URL of an event stream", Settings{URL: "http://user:" + dir + "@host\x7f/", Transport: TransportSSE}, "the configured URL is none", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.s.Name = "s"
			var logged strings.Builder
			p := NewPool([]Settings{test.s}, Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
			_, err := p.Call(t.Context(), def("s", "raw"), &tool.Call{})
			status := p.Status()[0].Err
			if closing := p.Close(t.Context()); closing != nil {
				t.Fatal(closing)
			}
			wantError(t, err, "s", ErrNotConnected)
			for _, one := range []error{err, status} {
				if one == nil || !strings.HasSuffix(one.Error(), test.want) || strings.Contains(one.Error(), dir) {
					t.Errorf("error = %v, want %s", one, test.want)
				}
			}
			if !strings.Contains(logged.String(), test.logged) {
				t.Errorf("the log does not say where it was looked for: %s", logged.String())
			}
		})
	}
}
