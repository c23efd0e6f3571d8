package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	// link returns path and query of a link to the page. With here, only browsers of this user may open the link.
	link    func(here bool) (string, error)
	servers liveServers
}

// liveOf describes a proxy at an address, or over stdio.
func liveOf(p *proxy.Proxy, config *configs.Config, at string, refused *atomic.Pointer[string]) live {
	return live{link: p.UILink, servers: p, status: func(ctx context.Context) web.Status {
		status := p.Status(ctx)
		status.PID, status.Configuration, status.At = os.Getpid(), config.Path, at
		if reason := refused.Load(); reason != nil {
			status.Refused = *reason
		}
		return status
	}}
}

// answerLive answers at a socket in dir until ctx ends. If no socket can be made (its path may be too long), toolfinch
// runs without one.
func answerLive(ctx context.Context, dir string, l live, log *slog.Logger) {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	place := filepath.Join(dir, liveName+hex.EncodeToString(random[:]))
	listener, err := listenPrivately(place)
	if err != nil {
		log.Debug("toolfinch status cannot ask this process", "error", err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		_ = rawjson.Write(w, l.status(r.Context()), "")
	})
	mux.HandleFunc("POST /link", func(w http.ResponseWriter, r *http.Request) {
		link, err := l.link(r.URL.Query().Has("here"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = rawjson.Write(w, map[string]string{"link": link}, "")
	})
	answerServers(mux, l.servers)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: leeway.Of(liveWait), WriteTimeout: leeway.Of(liveWait), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(listener) // returns when ctx has ended
	_ = os.Remove(place)
}

// listenPrivately listens at a socket that only its user can open. The socket is made in a private folder, and moved
// with its mode: otherwise others could open it before the chmod. A umask would affect all goroutines.
func listenPrivately(place string) (_ net.Listener, err error) {
	if runtime.GOOS == "windows" { // the folder's access list protects the socket
		return net.Listen("unix", place)
	}
	dir, err := os.MkdirTemp(filepath.Dir(place), ".") // a short path, because sockets' paths are limited
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	first := filepath.Join(dir, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err = os.Chmod(first, 0o600); err == nil {
		err = os.Rename(first, place)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// askLive asks the processes with a store in dir, in parallel. mine are the processes of the configuration, the latest
// start first. askLive removes the sockets of crashed processes.
func askLive(ctx context.Context, dir, configuration string) (mine, others []running) {
	entries, _ := os.ReadDir(dir) // an unreadable folder has no processes
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), liveName) })
	all := make([]running, min(len(entries), maxLive))
	var asking sync.WaitGroup
	for i := range all {
		one := &all[i]
		one.socket = filepath.Join(dir, entries[i].Name())
		asking.Go(func() {
			if one.silent = one.ask(ctx, http.MethodGet, "/", &one.Status); errors.Is(one.silent, syscall.ECONNREFUSED) {
				time.Sleep(liveBegins)
				one.silent = one.ask(ctx, http.MethodGet, "/", &one.Status)
			}
		})
	}
	asking.Wait()
	removed := false
	for _, one := range all {
		switch {
		case errors.Is(one.silent, syscall.ECONNREFUSED):
			removed = os.Remove(one.socket) == nil || removed
		case errors.Is(one.silent, fs.ErrNotExist): // the process has just ended
		case one.silent == nil && one.Configuration == configuration:
			mine = append(mine, one)
		default:
			others = append(others, one)
		}
	}
	if removed && len(entries) > len(all) { // processes that were not asked may still run
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
			return new(net.Dialer).DialContext(ctx, "unix", r.socket)
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
