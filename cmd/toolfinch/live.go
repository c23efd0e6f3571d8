package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"toolfinch/rawjson"
	"toolfinch/upstream"
)

// live is what a running toolfinch says of itself to other commands of its user. It
// answers at a socket in the folder of its store, however clients reach it.
type live struct {
	PID           int          `json:"pid"`
	Configuration string       `json:"configuration"`
	At            string       `json:"at"` // "stdio", or the address of HTTP
	Started       time.Time    `json:"started"`
	Servers       []liveServer `json:"servers,omitempty"`
}

// liveServer is the state of a server there.
type liveServer struct {
	Name  string         `json:"name"`
	State upstream.State `json:"state"`
	Since time.Time      `json:"since"`
	Tools int            `json:"tools"`
	Error string         `json:"error,omitempty"`
}

const (
	liveName  = "live-"         // what names of the sockets begin with
	liveWait  = 5 * time.Second // for an answer
	maxLive   = 16              // sockets that are asked
	maxAnswer = 4 << 20         // bytes
)

// answerLive answers at a socket in dir until ctx ends. Without a socket, as where the
// path is too long for one, toolfinch runs all the same.
func answerLive(ctx context.Context, dir string, about live, servers func() []upstream.Status, link func() (string, error), log *slog.Logger) {
	var random [4]byte
	_, _ = rand.Read(random[:]) // it never fails
	place := filepath.Join(dir, liveName+hex.EncodeToString(random[:]))
	listener, err := net.Listen("unix", place)
	if err == nil {
		err = os.Chmod(place, 0o600)
	}
	if err != nil {
		log.Debug("toolfinch servers cannot ask this process", "error", err)
		return
	}
	server := &http.Server{ReadHeaderTimeout: liveWait, WriteTimeout: liveWait, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/link" {
				at, err := link()
				if err != nil {
					http.Error(w, err.Error(), http.StatusConflict)
					return
				}
				_ = rawjson.Write(w, map[string]string{"link": at}, "")
				return
			}
			now := about
			for _, s := range servers() {
				one := liveServer{Name: s.Server, State: s.State, Since: s.Since, Tools: s.Tools}
				if s.Err != nil {
					one.Error = s.Err.Error()
				}
				now.Servers = append(now.Servers, one)
			}
			_ = rawjson.Write(w, now, "")
		})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(listener) // until it is closed, which removes the socket
}

// askLive asks the processes that run with the configuration and a store in dir, the
// last one started first. What a crashed one has left is removed.
func askLive(ctx context.Context, dir, configuration string) []live {
	entries, _ := os.ReadDir(dir) // nobody runs where nothing can be read
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), liveName) })
	var running []live
	for _, entry := range entries[:min(len(entries), maxLive)] {
		place := filepath.Join(dir, entry.Name())
		about, err := askOne(ctx, place)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			_ = os.Remove(place)
		case err == nil && about.Configuration == configuration:
			running = append(running, about)
		}
	}
	slices.SortFunc(running, func(a, b live) int { return b.Started.Compare(a.Started) })
	return running
}

func askOne(ctx context.Context, place string) (about live, err error) {
	if info, err := os.Lstat(place); err != nil || info.Mode()&os.ModeSocket == 0 {
		return about, errors.New("it is no socket")
	}
	client := &http.Client{Timeout: liveWait, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", place)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://live/", nil)
	if err != nil {
		return about, err
	}
	res, err := client.Do(req)
	if err != nil {
		return about, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	return about, err
}
