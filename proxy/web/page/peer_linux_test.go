package page

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/must"
)

// Whose a connection is follows from the kernel, over both versions of IP.
func TestAConnectionOfThisUser(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		listener, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Logf("no address %s here: %v", host, err)
			continue
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !ofThisUser(r) {
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		defer server.Close()
		if status := statusOf(t, server.URL); status != http.StatusOK {
			t.Errorf("%s: a connection of this user: status %d", host, status)
		}
		if os.Geteuid() != 0 {
			continue // nobody else can be played
		}
		self := filepath.Join(os.TempDir(), filepath.Base(t.TempDir())+".test") // which another user can read
		program, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = os.WriteFile(self, program, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(self)
		other := exec.Command(self, "-test.run=^TestVisitor$", "-test.v")
		other.Dir = "/"
		other.Env = []string{"TOOLFINCH_VISIT=" + server.URL}
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := other.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "status 403") {
			t.Errorf("%s: a connection of another user: %v: %s", host, err, out)
		}
	}
}

// TestVisitor is what the other user runs.
func TestVisitor(t *testing.T) {
	at := os.Getenv("TOOLFINCH_VISIT")
	if at == "" {
		t.Skip("it is run by another test")
	}
	t.Logf("status %d", statusOf(t, at))
}

func statusOf(t *testing.T, url string) int {
	t.Helper()
	response := must.Get(http.Get(url))(t)
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
