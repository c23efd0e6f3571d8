package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
)

// Every limit of what clients can make grow has a metric and a row in the
// documentation, with the same default. TestLimits of package transport reaches
// those of connections, tests of package register the others.
func TestEveryLimitIsDocumentedAndMeasured(t *testing.T) {
	_, url := openREST(t, "", configOf(t, []*script{shop(t, "up", "hat")}))
	measured := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^toolfinch_limit\{limit="(\w+)"\} (\S+)$`).FindAllStringSubmatch(curl(t, url, "GET", "/metrics", "").body, -1) {
		n := must.Get(strconv.ParseFloat(m[2], 64))(t)
		measured[m[1]] = strconv.FormatFloat(n, 'f', -1, 64)
	}
	page := must.Get(os.ReadFile("../docs/configuration.md"))(t)
	_, section, _ := strings.Cut(string(page), "\n## Limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d+) \\|").FindAllStringSubmatch(section, -1) {
		documented[m[1]] = m[2]
	}
	if most, _ := strconv.Atoi(measured["connections"]); most < 20_000 {
		measured["connections"] = "20000" // this process may have few descriptors
	}
	if len(measured) == 0 || !maps.Equal(measured, documented) {
		t.Errorf("measured   %v\ndocumented %v", measured, documented)
	}
}

// A connection that sends nothing more is closed after idle_time.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	config := configFor(folder(t))
	config.HTTP.IdleTime = 10 * time.Millisecond
	p := opened(t, config)
	conn, err := net.Dial("tcp", strings.TrimPrefix(run(t, p), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	answers := bufio.NewReader(conn)
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second)) // a bound, a quarter of the default idle_time
	if _, err := answers.ReadByte(); response.Close || !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %v, closed by its answer: %v", err, response.Close)
	}
}
