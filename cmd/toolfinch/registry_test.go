package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A failing registry costs the command, in one line that says whose words it has.
func TestRegistryCommandsSayWhyTheyFail(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"servers": [{"server": 1}, {"server": 2}, {"server": 3}]}`))
	}))
	t.Cleanup(broken.Close)
	for name, c := range map[string]struct {
		base string
		code int
		want string
	}{
		"nobody listens":   {"http://127.0.0.1:1", exitFailed, "connection refused"},
		"none is readable": {broken.URL, exitOK, "3 servers cannot be read and are left out"},
		"no URL":           {"registry.example.com", exitUsage, "http or https URL"},
		"with a user":      {"https://me:secret@registry.example.com", exitUsage, "without user"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run([]string{"registry", "search", "abc", "--registry", c.base}, strings.NewReader(""), &stdout, &stderr)
			if code != c.code || !strings.Contains(stderr.String(), c.want) || strings.Contains(stderr.String(), "secret") {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
}
