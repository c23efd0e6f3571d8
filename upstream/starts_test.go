package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// Servers start in the order in which they came, those that somebody waits for first.
func TestStartsAreQueued(t *testing.T) {
	for _, test := range []struct {
		name  string
		most  int
		come  string // servers as they come, asked for in upper case
		ask   string // of them, those that are asked for while they queue
		leave string // of them, those that are given up while they queue
		want  string // the order of starts
	}{
		{"as they come", 1, "abcd", "", "", "abcd"},
		{"asked for from the start", 1, "abCD", "", "", "aCDb"},
		{"asked for later", 1, "abcd", "dc", "", "adcb"},
		{"asked for twice", 1, "abcD", "D", "", "aDbc"},
		{"asked for when it runs", 1, "abc", "a", "", "abc"},
		{"given up", 1, "abcd", "", "c", "abd"},
		{"all at once", 4, "abcd", "d", "", "abcd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := &starts{free: test.most}
				var mu sync.Mutex
				order, running, peak := "", 0, 0
				all, cancel := map[string]*start{}, map[string]context.CancelCauseFunc{}
				var work sync.WaitGroup
				for _, name := range strings.Split(test.come, "") {
					one := newStart(strings.ToLower(name) != name)
					ctx, giveUp := context.WithCancelCause(t.Context())
					all[name], cancel[name] = one, giveUp
					work.Go(func() {
						done, err := queue.wait(ctx, one)
						if err != nil {
							if !errors.Is(err, errReplaced) {
								t.Errorf("%s: %v", name, err)
							}
							return
						}
						defer done()
						mu.Lock()
						order += name
						running++
						peak = max(peak, running)
						mu.Unlock()
						time.Sleep(startsWithin / 2)
						mu.Lock()
						running--
						mu.Unlock()
					})
					synctest.Wait()
				}
				for _, name := range test.ask {
					queue.ask(all[string(name)])
				}
				for _, name := range test.leave {
					cancel[string(name)](errReplaced)
				}
				work.Wait()
				if order != test.want || peak > test.most || queue.free != test.most || len(queue.queue) > 0 {
					t.Errorf("started %s, %d at once, and left %d places; want %s", order, peak, queue.free, test.want)
				}
			})
		})
	}
}

// A server that hangs keeps its place for a while only, and gives it back once.
func TestAHangingStartMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := &starts{free: 1}
		done, err := queue.wait(t.Context(), newStart(false))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		next, err := queue.wait(t.Context(), newStart(false))
		if waited := time.Since(began); err != nil || waited != startsWithin {
			t.Errorf("waited %s (error %v), want %s", waited, err, startsWithin)
		}
		done()
		next()
		next()
		if queue.free != 1 {
			t.Errorf("%d places are free", queue.free)
		}
	})
}

// A watch starts as many servers at once as it may, and next the servers that somebody waits
// for. The time to connect counts from the start, so that no server fails in the queue.
func TestServersStartInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, goOn := make(chan string, 6), make(chan struct{})
		var settings []Settings
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			s := lines(t, name, "")
			s.ConnectTimeout = startsWithin // shorter than all starts together
			settings = append(settings, s)
		}
		p := NewPool(settings, Options{Starting: 2, Programs: func(s Settings) conn.Program {
			play := programs(s)
			return func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) string {
				started <- s.Name
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				time.Sleep(startsWithin * 2 / 3)
				return play(ctx, stdin, stdout, stderr)
			}
		}})
		watching := make(chan error, 1)
		changes := make(chan Change, 12)
		ctx, end := context.WithCancel(t.Context())
		go func() { watching <- p.Watch(ctx, changes) }()
		synctest.Wait()
		if n := len(started); n != 2 {
			t.Errorf("%d servers start at once", n)
		}
		first := []string{<-started, <-started}
		var later []string
		for _, s := range settings {
			if !slices.Contains(first, s.Name) {
				later = append(later, s.Name)
			}
		}
		for _, s := range p.Health() {
			if waits := slices.Contains(later, s.Server); waits != (s.State == StateQueued) {
				t.Errorf("%s is %s", s.Server, s.State)
			}
		}
		p.Ask(later[3])
		called := make(chan error, 1)
		go func() {
			_, err := p.Call(t.Context(), def(later[2], "pid"), &tool.Call{Arguments: json.RawMessage(`{}`)})
			called <- err
		}()
		synctest.Wait()
		close(goOn)
		for range 2 { // two turns are free at once
			if got := <-started; got != later[3] && got != later[2] {
				t.Errorf("%s starts next, want %s or %s", got, later[3], later[2])
			}
		}
		if err := <-called; err != nil {
			t.Error(err)
		}
		for range settings {
			if change := <-changes; change.Err != nil {
				t.Errorf("%s: %v", change.Server, change.Err)
			}
		}
		end()
		if err := <-watching; err != nil {
			t.Error(err)
		}
	})
}

// How long a server may take to connect.
func TestTimeToConnect(t *testing.T) {
	npx := Settings{Command: "/usr/bin/npx", Args: []string{"-y", "server"}}
	own := npx
	own.ConnectTimeout = 7 * time.Second
	for _, test := range []struct {
		name  string
		s     Settings
		known Known
		want  time.Duration
	}{
		{"a program", Settings{Command: "server"}, Known{}, DefaultConnectTimeout},
		{"a URL", Settings{URL: "http://localhost"}, Known{}, DefaultConnectTimeout},
		{"may download", npx, Known{}, DownloadTimeout},
		{"was listed before", npx, Known{Listed: true}, DefaultConnectTimeout},
		{"its own", own, Known{}, 7 * time.Second},
	} {
		s := newServer(&environment{log: slog.New(slog.DiscardHandler), life: t.Context()}, test.s.complete(), test.known)
		if got := s.connectWithin(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestCommandsThatDownload(t *testing.T) {
	for line, want := range map[string]bool{
		"npx -y server":              true,
		`C:\nodejs\npx.cmd -y s`:     true,
		"/home/me/.local/bin/uvx s":  true,
		"bunx s":                     true,
		"npm exec server":            true,
		"npm --silent x server":      true,
		"npm start":                  false,
		"pnpm dlx server":            true,
		"pnpm run server":            false,
		"pipx run server":            true,
		"pipx list":                  false,
		"uv tool run server":         true,
		"uv run server.py":           false,
		"docker run -i --rm server":  true,
		"docker exec -i box server":  false,
		"docker":                     false,
		"cmd /c npx -y server":       true,
		"cmd.exe /C":                 false,
		"cmd /d /s /c npx -y server": true,
		"cmd /d /s /c node npx":      false,
		"cmd":                        false,
		"wsl -d Ubuntu -- npx s":     true,
		"wsl -d npx":                 false,
		"docker --context x run s":   true,
		"docker --context=x run s":   true,
		"docker -D run s":            true,
		"docker --context run ps":    false,
		"docker --context":           false,
		"uv --directory d tool run":  true,
		"wsl npx server":             true,
		"node npx":                   false,
		"python -m server":           false,
		"/opt/npx-server/bin/server": false,
	} {
		words := strings.Fields(line)
		if got := (Settings{Command: words[0], Args: words[1:]}).downloads(); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
}
