package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/pipes"
	"toolfinch/register/transport"
)

// Sixteen clients open a stream, send a request and vanish in the same moment. What
// is written for them must not reach a bystander, whose response may have the buffer
// that theirs had.
func TestWhatAVanishedClientIsToldReachesNobody(t *testing.T) {
	for name, vanish := range map[string]func(h *house) error{"HTTP+SSE": vanishSSE, "streamable HTTP": vanishStreamable} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, transport.Limits{})
			ctx, cancel := context.WithCancel(t.Context())
			var bystander, clients sync.WaitGroup
			bystander.Go(func() {
				for ctx.Err() == nil {
					if err := h.isReady(); err != nil {
						t.Errorf("the bystander: %v", err)
						return
					}
				}
			})
			for range 16 {
				clients.Go(func() {
					for range 15 {
						if err := vanish(h); err != nil {
							t.Errorf("a client: %v", err)
							return
						}
					}
				})
			}
			clients.Wait()
			cancel()
			bystander.Wait()
		})
	}
}

// isReady asks for ready, and looks at what comes.
func (h *house) isReady() error {
	response, err := http.Get(h.url + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != ready {
		return fmt.Errorf("got %q, %v; want %q", got, err, ready)
	}
	return nil
}

func (h *house) connect() (net.Conn, error) {
	return pipes.Dial(context.Background(), "tcp", strings.TrimPrefix(h.url, "http://"))
}

// vanishSSE opens a stream, and closes it while initialize is on its way.
func vanishSSE(h *house) error {
	stream, err := h.connect()
	if err != nil {
		return err
	}
	defer stream.Close()
	fmt.Fprintf(stream, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
	lines := bufio.NewScanner(stream)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	endpoint, ok := strings.CutPrefix(lines.Text(), "data: ")
	if !ok {
		return errors.New("no endpoint")
	}
	post, err := h.connect()
	if err != nil {
		return err
	}
	defer post.Close()
	body := greeting("2024-11-05")
	fmt.Fprintf(post, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", endpoint, len(body), body)
	stream.Close()
	_, err = io.Copy(io.Discard, post) // 202, or 404 where the stream has ended already
	return err
}

// vanishStreamable opens a session, its stream and a call, and closes both.
func vanishStreamable(h *house) error {
	response, err := h.do(context.Background(), http.MethodPost, "/mcp", greeting("2025-11-25"))
	if err != nil {
		return err
	}
	response.Body.Close()
	head := "Host: localhost\r\nAccept: application/json, text/event-stream\r\nMcp-Session-Id: " + response.Header.Get("Mcp-Session-Id") + "\r\n"
	stream, err := h.connect()
	if err != nil {
		return err
	}
	defer stream.Close()
	fmt.Fprintf(stream, "GET /mcp HTTP/1.1\r\n%s\r\n", head)
	post, err := h.connect()
	if err != nil {
		return err
	}
	defer post.Close()
	body := toolCall("1", "tell")
	fmt.Fprintf(post, "POST /mcp HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body)
	_, err = stream.Read(make([]byte, 1)) // it is open
	return err
}
