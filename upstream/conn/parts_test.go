package conn

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"toolfinch/internal/discovery"
)

func TestOrigins(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"https://a.example/mcp", "https://a.example/other?x=1", true},
		{"https://a.example/mcp", "https://A.EXAMPLE:443/mcp", true},
		{"http://a.example", "http://a.example:80", true},
		{"https://a.example/mcp", "http://a.example/mcp", false},
		{"https://a.example:443/mcp", "http://a.example:443/mcp", false},
		{"https://a.example/mcp", "https://a.example:8443/mcp", false},
		{"https://a.example/mcp", "https://b.example/mcp", false},
		{"http://[::1]:80/", "http://[::1]/", true},
	} {
		a, errA := url.Parse(test.a)
		b, errB := url.Parse(test.b)
		if errA != nil || errB != nil || (discovery.Origin(a) == discovery.Origin(b)) != test.same {
			t.Errorf("%s and %s: same origin = %v, want %v", test.a, test.b, !test.same, test.same)
		}
	}
}

func TestDelaysGrowWithJitterAndBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDelays(FirstDelay)
		sum, spread := time.Duration(0), map[time.Duration]bool{}
		for range 30 {
			delay := d.Next()
			if delay > MostDelay*3/2 {
				t.Errorf("a delay of %s", delay)
			}
			spread[delay] = true
			sum += delay
			time.Sleep(delay + time.Second) // the attempt
		}
		if sum < 10*MostDelay || len(spread) < 10 {
			t.Errorf("30 delays take %s and are %d different ones", sum, len(spread))
		}
		time.Sleep(2 * MostDelay)
		if delay := d.Next(); delay > FirstDelay*3/2 {
			t.Errorf("the delay after a calm time is %s", delay)
		}
	})
}

// What a stream of events may look like, and still be read.
func TestEventStreamsInAllForms(t *testing.T) {
	for name, test := range map[string]struct{ sent, want string }{
		"LF":                       {"id: 1\ndata: {\"a\":1}\n\ndata: 2\n\n", `1 {"a":1}|1 2`},
		"CRLF":                     {"id: 1\r\ndata: {\"a\":1}\r\n\r\ndata: 2\r\n\r\n", `1 {"a":1}|1 2`},
		"CR":                       {"id: 1\rdata: {\"a\":1}\r\rdata: 2\r\r", `1 {"a":1}|1 2`},
		"mixed":                    {"id: 1\rdata: {\"a\":1}\n\r\ndata: 2\r\n\n", `1 {"a":1}|1 2`},
		"several lines, CR":        {"data: {\"a\":\rdata: 1}\r\r", " {\"a\":\n1}"},
		"no blank line at the end": {"data: 1\n\nid: 7\ndata: {\"a\":1}\n", ` 1|7 {"a":1}`},
		"no line end at the end":   {"data: {\"a\":1}", ` {"a":1}`},
		"half a message":           {"data: 1\n\ndata: {\"a\":", " 1"},
		"a byte order mark":        {"\uFEFFdata: 1\n\n", " 1"},
		"nothing":                  {"", ""},
	} {
		for _, chunk := range []int{1, 2, 3, 1000} {
			e := &events{most: most}
			e.read(iotest.OneByteReader(strings.NewReader(test.sent)))
			if chunk > 1 {
				e.read(&chunked{test.sent, chunk})
			}
			var got []string
			for {
				_, data, err := e.next()
				if err != nil {
					break
				}
				got = append(got, e.lastID+" "+string(data))
			}
			e.end()
			if all := strings.Join(got, "|"); all != test.want {
				t.Errorf("%s, in parts of %d bytes: %q, want %q", name, chunk, all, test.want)
			}
		}
	}
}

// chunked reads as many bytes at once.
type chunked struct {
	rest string
	n    int
}

func (c *chunked) Read(p []byte) (int, error) {
	if c.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.n)], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// A process whose answers are none is said to have written what it wrote, in printable form.
func TestWhatAProcessWroteInsteadOfAnAnswer(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`
	for name, test := range map[string]struct{ writes, want string }{
		"a byte order mark":      {"\uFEFF" + answer, ""},
		"UTF-16":                 {"\xff\xfe{\x00\"\x00", `its output is UTF-16 and not UTF-8; it says: "\xff\xfe{\x00\"\x00"`},
		"UTF-16, big end first":  {"\xfe\xff\x00{\x00\"", "UTF-16"},
		"escape codes":           {"\x1b[32m" + answer, `it writes escape codes of a terminal to stdout; it says: "\x1b[32m{`},
		"two messages on a line": {answer + answer, "a line on stdout is not one JSON message"},
		"a broken message":       {answer[:40], "a line on stdout is not one JSON message"},
		"text":                   {"Listening on port 3000", `it writes text to stdout; it says: "Listening on port 3000"`},
		"an ID of 0":             {strings.Replace(answer, `"id":1`, `"id":0`, 1), `it answered with an id that no request has; it says: "{\"jsonrpc`},
		"no ID":                  {strings.Replace(answer, `"id":1,`, ``, 1), "it answered with an id that no request has"},
		"nothing":                {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c, err := Dial(ctx, Options{Command: "x", Known: EraLegacy, Legacy: true, Capabilities: []byte(`{}`), Log: slog.New(slog.DiscardHandler),
					Program: func(ctx context.Context, stdin io.Reader, stdout, _ io.Writer) string {
						_, _ = io.WriteString(stdout, test.writes+"\n")
						_, _ = io.Copy(io.Discard, stdin)
						return "exit status 0"
					}}, func(*Conn) Handler { return &heard{} })
				switch {
				case c != nil:
					c.Close()
					if name != "a byte order mark" {
						t.Error("it is connected")
					}
				case !strings.Contains(err.Error(), processSilent) || !strings.Contains(err.Error(), test.want):
					t.Errorf("%v, want %s", err, test.want)
				case strings.Contains(WithoutWords(err.Error()), "jsonrpc"):
					t.Errorf("models would read %s", WithoutWords(err.Error()))
				}
			})
		})
	}
}
