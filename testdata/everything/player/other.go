package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// have lets a program play, with the URL of the suite's server, or of toolfinch in
// front of that.
func have(ctx context.Context, program, url, through, home string) error {
	if through != "" {
		front, stop, err := serve(ctx, url, through, home)
		if err != nil {
			return err
		}
		defer stop()
		url = front
	}
	cmd := exec.CommandContext(ctx, program, url)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// serve starts toolfinch in front of a server and returns its URL once it is
// connected to that.
func serve(ctx context.Context, url, through, home string) (front string, stop func(), err error) {
	// The tools as they are, and nothing beside them: the client calls the first.
	config, err := configure(url, home, "tool_views", map[string]any{
		"default": map[string]any{"include_all": true, "exposure_mode": "direct"},
	})
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, through, "serve", "--config", config, "--transport", "http", "--listen", "127.0.0.1:0")
	log, err := cmd.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	listening := make(chan string, 1)
	go func() {
		defer close(listening)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			fmt.Fprintln(os.Stderr, lines.Text())
			var record struct{ Msg, URL string }
			if json.Unmarshal(lines.Bytes(), &record) == nil && record.Msg == "listening" {
				listening <- record.URL
			}
		}
	}()
	front, ok := <-listening
	if !ok {
		err = errors.New("toolfinch does not listen")
	} else {
		err = waitReady(ctx, strings.TrimSuffix(front, "/mcp")+"/readyz")
	}
	if err != nil {
		stop()
	}
	return front, stop, err
}

func waitReady(ctx context.Context, url string) error {
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(url)
		if err != nil {
			return err
		}
		var state struct {
			Ready int `json:"servers_ready"`
		}
		err = json.NewDecoder(response.Body).Decode(&state)
		_ = response.Body.Close()
		if err == nil && state.Ready == 1 {
			return nil
		}
	}
	return ctx.Err()
}
