//go:build unix

package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"toolfinch/internal/must"
)

// TestSilentConnectionsShutNobodyOut has more silent connections than the process may have descriptors.
func TestSilentConnectionsShutNobodyOut(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]server{"everything": script(t, module(t, "@modelcontextprotocol/server-everything/dist/index.js"), "stdio")}, map[string]any{"default_exposure": "direct"})
	few := filepath.Join(h.home, "few")
	must.Do(t, os.WriteFile(few, []byte("#!/bin/sh\nulimit -n 256 && exec "+program(t)+` "$@"`+"\n"), 0o700))
	run := h.startOf(t, few)
	at := run.url[len("http://") : len(run.url)-len("/mcp")]
	for range 400 {
		silent := must.Get(net.Dial("tcp", at))(t)
		t.Cleanup(func() { silent.Close() })
		must.Get(silent.Write([]byte("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")))(t) // idle_time is longer than what a new connection has
	}
	c := newSDKClient(t, h.env)
	c.do(t, "connect", map[string]any{"url": run.url}, nil)
	c.waitReady(t, 1)
	kill(t, run.pid, "server-everything") // its next process needs pipes
	if got := c.call(t, "everything_echo", map[string]any{"message": "here"}).text(); got != "Echo: here" {
		t.Errorf("beside silent connections the call answers %q", got)
	}
}
