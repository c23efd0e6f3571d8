//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// The reverse proxies of docs/deployment.md, the real ones with the files of the page,
// bring TLS in front of a toolfinch with the page's configuration: who has a key comes in
// by the page's name, and events arrive when they are sent.
func TestDeploymentBehindProxies(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/deployment.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind, has string) string {
		t.Helper()
		for _, match := range regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
			if strings.Contains(match[1], has) {
				return match[1]
			}
		}
		t.Fatalf("docs/deployment.md has no %s with %q", kind, has)
		return ""
	}
	var settings map[string]any
	must.Do(t, yaml.Unmarshal([]byte(block("yaml", "allowed_hosts")), &settings))
	for _, ours := range []string{"transport", "listen", "mcp_servers"} { // flags and the house set them
		delete(settings, ours)
	}
	if file, err := os.ReadFile("../packaging/container.yaml"); err != nil || string(file) != block("yaml", "auth: keys\nmcp_servers") {
		t.Errorf("docs/deployment.md shows another packaging/container.yaml: %v", err)
	}
	h := newHouse(t, map[string]server{}, settings)
	url, _ := h.serveHTTP(t)
	out, err := h.output(t, "key", "create", "laptop")
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(out))
	upstream := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	const name = "tools.example.com"
	dir := t.TempDir()
	pool := selfSigned(t, dir, name)

	proxies := map[string]func(t *testing.T, address string) (file string, command []string){
		"nginx": func(t *testing.T, address string) (string, []string) {
			text := strings.NewReplacer(
				"listen 443 ssl", "listen "+address+" ssl",
				"http://127.0.0.1:8080", "http://"+upstream,
				"/etc/ssl/certs/"+name+".pem", filepath.Join(dir, "cert.pem"),
				"/etc/ssl/private/"+name+".key", filepath.Join(dir, "key.pem"),
			).Replace(block("nginx", "proxy_pass"))
			var temporary strings.Builder
			for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
				fmt.Fprintf(&temporary, "%s_temp_path %s;\n", kind, t.TempDir())
			}
			return fmt.Sprintf("daemon off; master_process off; pid %s; error_log stderr; events {}\nhttp { access_log off;\n%s%s}\n",
				filepath.Join(t.TempDir(), "pid"), &temporary, text), []string{"nginx", "-c"}
		},
		"caddy": func(t *testing.T, address string) (string, []string) {
			_, port, _ := net.SplitHostPort(address)
			text := strings.NewReplacer(
				name+" {", fmt.Sprintf("%s:%s {\n\tbind 127.0.0.1\n\ttls %s %s", name, port, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")),
				"127.0.0.1:8080", upstream,
			).Replace(block("caddyfile", "reverse_proxy"))
			return "{\n\tadmin off\n\tauto_https off\n}\n" + text, []string{"caddy", "run", "--adapter", "caddyfile", "--config"}
		},
	}
	for program, configure := range proxies {
		t.Run(program, func(t *testing.T) {
			path, err := exec.LookPath(program)
			if err != nil {
				if path, err = exec.LookPath("/usr/sbin/" + program); err != nil {
					missing(t, "%s is not installed", program)
				}
			}
			address := freeAddress(t)
			text, words := configure(t, address)
			file := filepath.Join(t.TempDir(), program+".conf")
			must.Do(t, os.WriteFile(file, []byte(text), 0o600))
			cmd := exec.Command(path, append(words[1:], file)...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_DATA_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
			log := newLog(t, program)
			cmd.Stdout, cmd.Stderr = log, log
			must.Do(t, cmd.Start())
			ended := make(chan struct{})
			go func() { _ = cmd.Wait(); close(ended) }()
			t.Cleanup(func() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				defer func() { _ = cmd.Process.Kill() }()
				await.Value(t, ended)
			})
			transport := &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: pool},
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, address)
				},
			}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			ask := func(method, path, key, body string) (*http.Response, error) {
				request, err := http.NewRequestWithContext(t.Context(), method, "https://"+name+path, strings.NewReader(body))
				if err != nil {
					return nil, err
				}
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("Accept", "application/json, text/event-stream")
				if key != "" {
					request.Header.Set("Authorization", "Bearer "+key)
				}
				return client.Do(request)
			}
			await.Nil(t, func() error {
				select {
				case <-ended:
					t.Fatalf("%s has ended:\n%s\n%s", program, log, text)
				default:
				}
				response, err := ask("GET", "/healthz", "", "")
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if response.StatusCode != http.StatusOK {
					return fmt.Errorf("/healthz: %s", response.Status)
				}
				return nil
			})
			const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"behind","version":"1"}}}`
			for key, want := range map[string]int{"": http.StatusUnauthorized, key: http.StatusOK} {
				response := must.Get(ask("POST", "/mcp", key, begin))(t)
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				if response.StatusCode != want || want == http.StatusOK && !bytes.Contains(body, []byte(`"serverInfo"`)) {
					t.Errorf("with the key %.6q: %s %s", key, response.Status, body)
				}
			}
			pageBehind(t, client, "https://"+name, key)
			// The stream stays open: what arrives of it was not buffered.
			stream, err := ask("GET", "/sse", key, "")
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Body.Close()
			events := make(chan string)
			go func() {
				defer close(events)
				for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
					if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok && strings.TrimSpace(data) != "" {
						select {
						case events <- strings.TrimSpace(data):
						case <-t.Context().Done():
							return
						}
					}
				}
			}()
			endpoint := await.Value(t, events)
			if i := strings.Index(endpoint, "/message"); i >= 0 {
				endpoint = endpoint[i:]
			}
			response, err := ask("POST", endpoint, key, begin)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if got := await.Value(t, events); !strings.Contains(got, `"serverInfo"`) {
				t.Errorf("POST %s: %s, and the stream has %s", endpoint, response.Status, got)
			}
		})
	}
}

// pageBehind logs in to the page with an API key, as a browser does that came by a name of a
// reverse proxy with TLS.
func pageBehind(t *testing.T, client *http.Client, at, key string) {
	t.Helper()
	without := *client
	without.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/ui/login", strings.NewReader("key="+key))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", at)
	response, err := without.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	cookies := response.Cookies()
	if response.StatusCode != http.StatusSeeOther || len(cookies) != 1 || !cookies[0].Secure || cookies[0].Path != "" {
		t.Fatalf("the page lets nobody in: %s, cookies %v", response.Status, cookies)
	}
	for path, want := range map[string]int{"/": http.StatusSeeOther, "/ui/servers": http.StatusOK, "/api/servers": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.AddCookie(cookies[0])
		response, err := without.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s with the cookie of the page: %s, want %d", path, response.Status, want)
		}
	}
}

// selfSigned writes cert.pem and key.pem for a name, and returns who trusts them.
func selfSigned(t *testing.T, dir, name string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for file, content := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		text := pem.EncodeToMemory(content)
		must.Do(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
		if file == "cert.pem" {
			pool.AppendCertsFromPEM(text)
		}
	}
	return pool
}
