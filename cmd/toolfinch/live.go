package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy"
	"toolfinch/proxy/web"
)

// running is the self-description of a running toolfinch. With any transport, toolfinch answers other commands of its
// user at a socket in the folder of its store.
type running struct {
	web.Status
	socket string
	silent error // why there is no answer
}

// served says whom a process serves.
func (r running) served() string {
	switch {
	case r.Shared:
		return "for all agents"
	case r.At == configs.TransportStdio:
		return "for one agent"
	}
	return "http://" + r.At
}

const (
	liveName = "live-"         // prefix of the sockets' names
	liveWait = 5 * time.Second // bounds the wait for an answer
	maxLive  = 16              // most sockets that are asked
	// liveBegins exceeds the time between a socket's appearance and its first answer.
	liveBegins = 50 * time.Millisecond
	maxAnswer  = 4 << 20 // bytes
)

// live holds a running toolfinch's answers to other commands of its user.
type live struct {
	status func(ctx context.Context) web.Status
	// page returns a link to the page, which it serves from then on. With here, only browsers of this user may open the
	// link.
	page    func(here bool) (link string, err error)
	attach  http.HandlerFunc // lets a relay in; nil if none is let in; see sharing
	stop    func()           // ends the process
	shared  bool             // relays connect to it, and nobody else
	beside  []string         // why other processes of the configuration are not shared
	servers liveServers
}

// liveOf describes a proxy at an address, or over stdio.
func liveOf(p *proxy.Proxy, config *configs.Config, at string, refused *atomic.Pointer[string]) live {
	return live{servers: p, status: func(ctx context.Context) web.Status {
		status := p.Status(ctx)
		status.PID, status.Configuration, status.At = os.Getpid(), config.Path, at
		if reason := refused.Load(); reason != nil {
			status.Refused = *reason
		}
		return status
	}}
}

// answerLive answers at a listener until ctx ends.
func answerLive(ctx context.Context, listener net.Listener, l live, log *slog.Logger) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		status := l.status(r.Context())
		status.Shared, status.Beside = l.shared, l.beside
		_ = rawjson.Write(w, status, "")
	})
	mux.HandleFunc("POST /link", func(w http.ResponseWriter, r *http.Request) {
		link, err := l.page(r.URL.Query().Has("here"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = rawjson.Write(w, map[string]string{"link": link}, "")
	})
	if l.attach != nil {
		mux.HandleFunc("POST /attach", l.attach)
	}
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3") // so that the answer is complete before the end closes its connection
		_ = rawjson.Write(w, struct{}{}, "")
		_ = http.NewResponseController(w).Flush()
		l.stop()
	})
	answerServers(mux, l.servers)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: leeway.Of(liveWait), WriteTimeout: leeway.Of(liveWait), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(listener) // returns when ctx has ended
	_ = os.Remove(listener.Addr().String())
}

// maxSocket bounds the path of a socket, in bytes: systems have room for 104 or 108.
const maxSocket = 103

// socketDir returns the folder of the sockets of a data directory: below it, or in a folder of the user's own if its
// path is too long.
func socketDir(dataDir string) string {
	dir := filepath.Join(dataDir, "live")
	if len(dir)+len("/"+liveName)+8 <= maxSocket {
		return dir
	}
	sum := sha256.Sum256([]byte(dataDir))
	temporary := "/tmp" // not TMPDIR, which may differ between agents
	if runtime.GOOS == "windows" {
		temporary = os.TempDir()
	}
	return filepath.Join(temporary, fmt.Sprintf("toolfinch-%d", os.Getuid()), hex.EncodeToString(sum[:8]))
}

// makeSocketDir makes the data directory and the folder of its sockets, which it returns. It fails unless the folder is
// this user's alone.
func makeSocketDir(dataDir string) (dir string, err error) {
	dir = socketDir(dataDir)
	if err := errors.Join(os.MkdirAll(dataDir, 0o700), os.MkdirAll(dir, 0o700)); err != nil {
		return "", err
	}
	if filepath.Dir(dir) != dataDir { // first, so that nobody else can replace dir
		if err := isPrivate(filepath.Dir(dir)); err != nil {
			return "", err
		}
	}
	return dir, isPrivate(dir)
}

// listenLive listens at a socket for other commands of this user.
func listenLive(dataDir string) (net.Listener, error) {
	dir, err := makeSocketDir(dataDir)
	if err != nil {
		return nil, err
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, liveName+hex.EncodeToString(random[:])), Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return ownListener{listener}, nil
}

// ownListener accepts connections of this user only.
type ownListener struct{ *net.UnixListener }

// Accept returns the next connection of this user.
func (l ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if isOwn(conn) == nil {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// dialLive connects to a socket of a process of this user.
func dialLive(ctx context.Context, socket string) (*net.UnixConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := isOwn(conn.(*net.UnixConn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn.(*net.UnixConn), nil
}

// refused reports whether nobody listens at a socket.
func refused(err error) bool {
	const wsaeconnrefused = syscall.Errno(10061) // Windows has its own number
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, wsaeconnrefused)
}

// sockets returns the sockets of a data directory.
func sockets(dataDir string) (paths []string) {
	dir := socketDir(dataDir)
	entries, _ := os.ReadDir(dir) // an unreadable folder has no processes
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), liveName) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// askLive asks the processes with a store in dir, in parallel. mine are the processes of the configuration, the latest
// start first. askLive removes the sockets of crashed processes.
func askLive(ctx context.Context, dir, configuration string) (mine, others []running) {
	paths := sockets(dir)
	all := make([]running, min(len(paths), maxLive))
	var asking sync.WaitGroup
	for i := range all {
		one := &all[i]
		one.socket = paths[i]
		asking.Go(func() {
			if one.silent = one.ask(ctx, http.MethodGet, "/", &one.Status); refused(one.silent) {
				time.Sleep(liveBegins)
				one.silent = one.ask(ctx, http.MethodGet, "/", &one.Status)
			}
		})
	}
	asking.Wait()
	removed := false
	for _, one := range all {
		switch {
		case refused(one.silent):
			removed = os.Remove(one.socket) == nil || removed
		case errors.Is(one.silent, fs.ErrNotExist): // the process has just ended
		case one.silent == nil && one.Configuration == configuration:
			mine = append(mine, one)
		default:
			others = append(others, one)
		}
	}
	if removed && len(paths) > len(all) { // processes that were not asked may still run
		return askLive(ctx, dir, configuration)
	}
	sort.Slice(mine, func(i, j int) bool { return mine[i].Started.After(mine[j].Started) })
	return mine, others
}

// ask makes a request at the socket and decodes the answer.
func (r running) ask(ctx context.Context, method, path string, answer any) error {
	return r.askWithin(ctx, liveWait, method, path, answer)
}

func (r running) askWithin(ctx context.Context, within time.Duration, method, path string, answer any) error {
	info, err := os.Lstat(r.socket)
	switch {
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return errors.New("it is no socket")
	}
	client := &http.Client{Timeout: leeway.Of(within), Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialLive(ctx, r.socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://live"+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return errors.New(strings.TrimSpace(printable.Line(string(data))))
	}
	return json.Unmarshal(data, answer)
}
