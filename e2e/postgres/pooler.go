package postgres

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// Pooled returns the URL of a database of the cluster behind PgBouncer, which ends with the test.
// mode is its pool_mode. Without PgBouncer it does what Start does without PostgreSQL.
func (c *Cluster) Pooled(t testing.TB, database, mode string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // Debian's
	}
	if err != nil {
		missing(t, errors.New("there is no pgbouncer: it is neither in PATH nor in /usr/sbin"))
	}
	dir, err := os.MkdirTemp(c.dir, mode)
	if err != nil {
		t.Fatal(err)
	}
	as, err := unprivileged(dir)
	if err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s user=toolfinch\n[pgbouncer]\nlisten_addr=\nunix_socket_dir=%s\nauth_type=any\npool_mode=%s\n", c.dir, dir, mode)
	must.Do(t, os.WriteFile(settings, []byte(text), 0o644))
	// The shell ends it when its input ends, so also when the test is killed.
	cmd := exec.Command("/bin/sh", "-c", `"$0" -q "$1" >&2 & read -r _; kill -INT $!; wait $!`, program, settings)
	cmd.SysProcAttr = as
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait() // it was ended by a signal
	})
	u.RawQuery = url.Values{"host": {dir}, "port": {"6432"}}.Encode()
	for deadline := time.Now().Add(await.Bound); ; time.Sleep(10 * time.Millisecond) {
		conn, err := pgx.Connect(t.Context(), u.String())
		if err == nil {
			_ = conn.Close(t.Context())
			return u.String()
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
}
