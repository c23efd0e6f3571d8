package proxy_test

import (
	"bufio"
	"context"
	"flag"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"toolfinch/configs"
	"toolfinch/internal/must"
	"toolfinch/proxy"
)

var update = flag.Bool("update", false, "write golden files anew")

// The files of testdata/wire are sessions over stdio, line by line: what a client says, what
// it is told, and what the servers hear of it. Each begins with the promise that it pins.
//
//	toolfinch.yaml      the configuration; the address of the server NAME is http://NAME
//	NAME legacy         a server of 2025-11-25, or "NAME modern", one of 2026-07-28: in each line
//	                    what a request is about, and a message for it, of which a result or an
//	                    error is the last. A request that comes again gets the next ones, or the
//	                    last ones again. "notifications/..." is a message that the session has
//	                    the server send; {} keeps a call without an answer
//	session             > what the client says, < what it is told, NAME: what a server hears of
//	                    calls; "NAME says METHOD" has the server notify; "wait 2s" lets time pass
//
// $token is the progress token of a call, $state the last requestState, $ask the ID of the last
// request to the client, $score that of a tool. -update writes what is told and heard anew.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	network := &memory{}
	network.install(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive := must.Get(txtar.ParseFile(file))(t)
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := &wired{dir: dir, network: network, servers: map[string]*wiredServer{}, last: map[string]string{}}
				for i, section := range archive.Files {
					text := strings.ReplaceAll(string(section.Data), "\r\n", "\n")
					name, era, isServer := strings.Cut(section.Name, " ")
					switch {
					case section.Name == "toolfinch.yaml":
						w.configure(t, section.Data)
					case isServer:
						w.serve(t, name, era == "modern", text)
					case section.Name == "session":
						got := w.session(t, text, func(d time.Duration) { time.Sleep(d) })
						if archive.Files[i].Data = []byte(got); got != text && !*update {
							t.Errorf("%s: the session is\n%s\nwant\n%s", file, got, text)
						}
					default:
						t.Errorf("%s: what is %q?", file, section.Name)
					}
				}
			})
			if *update {
				must.Do(t, os.WriteFile(file, txtar.Format(archive), 0o644))
			}
		})
	}
}

// wired is a session in the making.
type wired struct {
	dir     string
	network *memory
	config  *configs.Config
	servers map[string]*wiredServer
	last    map[string]string // what stands for unsteady members, and the last of them

	mu   sync.Mutex // guards told
	told []string   // by the proxy, since the last line
}

// wiredServer is a server of a session.
type wiredServer struct {
	*script
	answers map[string][][]string // by what requests are about: for each of them, messages
	says    map[string]string     // params by method
	shown   int                   // of what it heard
}

func (w *wired) configure(t *testing.T, yaml []byte) {
	t.Helper()
	path := filepath.Join(w.dir, "toolfinch.yaml")
	must.Do(t, os.WriteFile(path, yaml, 0o600))
	config, err := configs.Load(configs.Options{Path: path, Dir: w.dir, UserDir: w.dir, Env: func(string) (string, bool) { return "", false }, Flags: map[string]string{"data_dir": w.dir, "embedder": "BM25"}})
	if err != nil {
		t.Fatal(err)
	}
	w.config = config
}

func (w *wired) serve(t *testing.T, name string, modern bool, text string) {
	s := &wiredServer{script: scripted(name, modern), answers: map[string][][]string{}, says: map[string]string{}}
	w.servers[name] = s
	s.capabilities = `{"tools":{"listChanged":true}}`
	fresh := map[string]bool{} // whether the next line of a key is for the next request
	for line := range strings.Lines(text) {
		about, message, _ := strings.Cut(strings.TrimSpace(line), " {")
		message = "{" + message
		if strings.HasPrefix(about, "notifications/") {
			s.says[about] = message
			continue
		}
		all := s.answers[about]
		if all == nil || fresh[about] {
			all = append(all, nil)
			s.on(about, func(r *request) { s.answer(about, r) })
		}
		all[len(all)-1] = append(all[len(all)-1], message)
		s.answers[about], fresh[about] = all, part([]byte(message), "method") == nil
	}
	server := &http.Server{Handler: s}
	at := w.network.listen(name + ":80")
	go func() { _ = server.Serve(at) }()
	t.Cleanup(at.kill)
}

// answer sends the next messages for a request.
func (s *wiredServer) answer(about string, r *request) {
	s.mu.Lock()
	messages := s.answers[about][0]
	if len(s.answers[about]) > 1 {
		s.answers[about] = s.answers[about][1:]
	}
	s.mu.Unlock()
	for _, message := range messages {
		message = strings.ReplaceAll(message, `"$token"`, string(part(part(r.Params, "_meta"), "progressToken")))
		switch m := parse([]byte(message)); {
		case m.Method != "" && part([]byte(message), "ask") != nil:
			r.ask(m.Method, string(m.Params))
		case m.Method != "":
			r.notify(m.Method, string(m.Params))
		case m.Result != nil:
			r.result(string(m.Result))
		case m.Error != nil:
			r.fail(string(m.Error))
		default:
			<-r.ended
		}
	}
}

// unsteady are the members of messages that are others in each run, by what stands for them.
var unsteady = map[string]*regexp.Regexp{
	"$state": regexp.MustCompile(`"requestState":"([^"]+)"`),
	"$ask":   regexp.MustCompile(`"id":"(toolfinch-[^"]+)"`),
	"$score": regexp.MustCompile(`\\"score\\":([0-9.]+)`),
}

// session runs one and returns it as it was. pause lets time pass.
func (w *wired) session(t *testing.T, text string, pause func(time.Duration)) string {
	p := opened(t, w.config, proxy.WithVersion("test"))
	ctx, cancel := context.WithCancel(context.Background())
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	running.Go(func() {
		if err := p.ServeStdio(context.Background(), fromClient, toClient); err != nil {
			t.Errorf("ServeStdio: %v", err)
		}
		_ = toClient.Close()
	})
	running.Go(func() {
		for lines := bufio.NewReader(fromServer); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			w.mu.Lock()
			w.told = append(w.told, line)
			w.mu.Unlock()
		}
	})
	<-p.Ready()
	synctest.Wait()
	var out strings.Builder
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == ">":
			said := line[2:]
			for name, is := range w.last {
				said = strings.ReplaceAll(said, name, is)
			}
			must.Get(io.WriteString(toServer, said))(t)
		case words[0] == "wait":
			d := must.Get(time.ParseDuration(words[1]))(t)
			pause(d)
		case len(words) == 3 && words[1] == "says":
			s := w.servers[words[0]]
			s.tell(t, words[2], s.says[words[2]])
		default: // what is told and heard is written anew
			continue
		}
		synctest.Wait()
		out.WriteString(line)
		w.happened(&out)
	}
	_ = toServer.Close()
	cancel()
	running.Wait()
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	w.happened(&out)
	return out.String()
}

// happened writes what servers have heard and clients were told since it did so last.
func (w *wired) happened(out *strings.Builder) {
	for _, name := range slices.Sorted(maps.Keys(w.servers)) {
		s := w.servers[name]
		s.mu.Lock()
		for _, m := range s.heard[s.shown:] {
			if m.Method == "" || slices.Contains([]string{"tools/call", "prompts/get", "resources/read", "completion/complete", "notifications/cancelled"}, m.Method) {
				out.WriteString(name + ": " + m.raw + "\n")
			}
		}
		s.shown = len(s.heard)
		s.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.told {
		for name, member := range unsteady {
			if found := member.FindStringSubmatch(line); found != nil {
				line, w.last[name] = strings.ReplaceAll(line, found[1], name), found[1]
			}
		}
		out.WriteString("< " + line)
	}
	w.told = nil
}
