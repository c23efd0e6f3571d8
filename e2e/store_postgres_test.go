//go:build unix

package e2e_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// Commands that read or write the store do so in PostgreSQL, and say in one line what is
// wrong while that does not run.
func TestCommandsOverPostgres(t *testing.T) {
	t.Parallel()
	db := postgres.New(t)
	h := newHouse(t, map[string]server{"clock": {Command: program(t), Args: []string{"demo-server", "clock", "demo"}, ConnectTimeout: patience.String()}}, map[string]any{"store": db.Database(t)})
	for _, tt := range []struct {
		command string
		input   string
		want    string // in what it prints
	}{
		{command: "reindex", want: "clock"},
		{command: "search what time is it", want: "clock_current_time"},
		{command: "call clock.current_time --zone UTC", want: "UTC"},
		{command: "key create robot", want: "tfkey_"},
		{command: "key list", want: "robot"},
		{command: "secret set token", input: "hush", want: ""},
		{command: "secret list", want: "token"},
		{command: "store check", want: "PostgreSQL"},
		{command: "validate", want: "clock"},
	} {
		t.Run(strings.ReplaceAll(tt.command, " ", "_"), func(t *testing.T) {
			out, said, code := h.run(t, tt.input, strings.Fields(tt.command)...)
			if code != 0 || !strings.Contains(out+said, tt.want) {
				t.Errorf("exit code %d, want 0 and %q:\n%s\n%s", code, tt.want, out, said)
			}
		})
	}
	db.Stop(t)
	for _, command := range []string{"search time", "key create other", "store check"} {
		t.Run("stopped/"+strings.ReplaceAll(command, " ", "_"), func(t *testing.T) {
			out, said, code := h.run(t, "", strings.Fields(command)...)
			if code != 1 || !strings.Contains(said, "PostgreSQL") || !strings.Contains(said, "check that it runs") || strings.Count(said, "\n") != 1 {
				t.Errorf("exit code %d, want 1 and one line that says why:\n%s\n%s", code, out, said)
			}
		})
	}
}

// A host that takes connections and says nothing costs a command one wait, also where secrets of
// the configuration are read from it first, and one line.
func TestCommandsWhereTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	var came atomic.Int64
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			defer conn.Close()
		}
	}()
	h := newHouse(t, map[string]server{"clock": {Command: program(t), Args: []string{"demo-server", "clock", "demo"}, Env: map[string]string{"TOKEN": "${secret:CLOCK}"}, ConnectTimeout: patience.String()}},
		map[string]any{"store": "postgres://u@" + silent.Addr().String() + "/d?connect_timeout=1&sslmode=disable"})
	for _, command := range []string{"search time", "key list", "validate"} {
		t.Run(strings.ReplaceAll(command, " ", "_"), func(t *testing.T) {
			before := came.Load()
			out, said, code := h.run(t, "", strings.Fields(command)...)
			if code != 1 || !strings.Contains(said, "no answer within 1s; check that it runs") || strings.Count(said, "\n") != 1 {
				t.Errorf("exit code %d, want 1 and one line that says why:\n%s\n%s", code, out, said)
			}
			await.True(t, func() bool { return came.Load() > before })
			if n := came.Load() - before; n != 1 {
				t.Errorf("it waited for %d connections, want 1", n)
			}
		})
	}
}

// Schemas of one database are stores of their own. What is printed of a store is no secret.
func TestStoresThatAreCopied(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil, nil)
	at := strings.Replace(postgres.Start(t), "toolfinch@", "toolfinch:Geheim@", 1)
	for _, tt := range []struct {
		from, to string
		code     int
		want     string
	}{
		{"", "", 2, "both are postgres://localhost/test"},
		{"&search_path=public", "&search_path=public", 2, "?search_path=public"},
		{"&search_path=public", "&search_path=other", 1, "there is no store in postgres://localhost/test"},
	} {
		out, said, code := h.run(t, "", "store", "--copy", at+tt.from, at+tt.to)
		if code != tt.code || !strings.Contains(said, tt.want) || strings.Contains(out+said, "Geheim") {
			t.Errorf("%s to %s: exit code %d, want %d and %q:\n%s\n%s", tt.from, tt.to, code, tt.code, tt.want, out, said)
		}
	}
}
