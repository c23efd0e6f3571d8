package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/limit"
)

// Names are the hosts and origins that requests may show.
type Names struct {
	Hosts   []string // allowed in Host, beside this machine; lower case, a port restricts to that port
	Origins []string // allowed in Origin, beside this machine
	// Pages are the paths of our own pages, with a final slash for all below. A request there may come from
	// such a page under any name: its Origin names the request's own Host, or one of Hosts. The handlers of
	// pages check the requests.
	Pages []string
}

// own reports whether a request's Origin is our own page.
func (n Names) own(r *http.Request, origin string) bool {
	ours := func(page string) bool {
		return r.URL.Path == page || strings.HasSuffix(page, "/") && strings.HasPrefix(r.URL.Path, page)
	}
	if !slices.ContainsFunc(n.Pages, ours) {
		return false
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	host := strings.ToLower(u.Host)
	return host == strings.ToLower(r.Host) || slices.Contains(n.Hosts, host) || slices.Contains(n.Hosts, strings.ToLower(u.Hostname()))
}

// Guard lets requests in to next, and keeps web pages out, except allowed origins and our own pages: a
// browser that a page led here, through a rebound DNS name or a cross-site request, shows the page in
// Host or Origin. An IP address in Host cannot be a rebound name; over loopback it must still be this
// machine's. Bodies are bounded in time and, together, in bytes.
func (c *Clients) Guard(next http.Handler, names Names, refuse Refuse) http.Handler {
	next = c.Bounded(next, refuse)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && !names.has(r.Host, local) {
			refuse(w, r, http.StatusForbidden, "the Host header does not name this server; see allowed_hosts")
			return
		}
		if size := headerBytes(r); size > c.headers.Max() {
			refuse(w, r, http.StatusRequestHeaderFieldsTooLarge, c.headers.Refuse().Error())
			return
		}
		// A request may have several Origin headers: each must be allowed.
		for _, origin := range r.Header.Values("Origin") {
			if !slices.Contains(names.Origins, origin) && !isLoopbackOrigin(origin) && !names.own(r, origin) {
				refuse(w, r, http.StatusForbidden, "this Origin is not allowed; see allowed_origins")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// headerBytes counts the bytes of a request's headers.
func headerBytes(r *http.Request) (n int64) {
	for name, values := range r.Header {
		for _, value := range values {
			n += int64(len(name) + len(value))
		}
	}
	return n
}

// has reports whether a Host names the server at a local address.
func (n Names) has(hostport string, local net.Addr) bool {
	host := strings.ToLower(hostport)
	if IsLoopback(host) || slices.Contains(n.Hosts, host) {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if slices.Contains(n.Hosts, strings.TrimSuffix(host, ".")) {
		return true
	}
	beyond := local.Network() != "unix" && !IsLoopback(local.String())
	return beyond && net.ParseIP(strings.Trim(host, "[]")) != nil
}

// Refuse answers a refused request.
type Refuse func(w http.ResponseWriter, r *http.Request, status int, reason string)

// Counted serves requests other than MCP within the same limits.
func (c *Clients) Counted(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.requests.Take(1); err != nil {
			w.Header().Set("Retry-After", retryAfter)
			refuse(w, r, http.StatusServiceUnavailable, err.Error())
			return
		}
		defer c.requests.Release(1)
		next.ServeHTTP(w, r)
	})
}

func isLoopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && IsLoopback(u.Host)
}

// IsLoopback reports whether a host, with or without a port, is this machine.
func IsLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// Bounded bounds the bodies of requests to next.
func (c *Clients) Bounded(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &body{ReadCloser: http.MaxBytesReader(w, r.Body, c.messages.Max()), clients: c, control: http.NewResponseController(w)}
		b.deadline(c.limits.BodyTime)
		defer b.end()
		r.Body = b
		if r.Method != http.MethodPost {
			if err := drain(w, r); err != nil {
				status, reason := BodyStatus(err)
				refuse(w, r, status, reason)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// maxDrained bounds the bytes that are read of an unused body.
const maxDrained = 64 << 10

// drain reads an unused body: net/http notices the end of a connection only after the body.
func drain(w http.ResponseWriter, r *http.Request) error {
	_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxDrained))
	return err
}

// body is a request's body; its bytes count until the request ends.
type body struct {
	io.ReadCloser
	clients *Clients
	control *http.ResponseController
	taken   int64
	read    bool // to its end
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		// The last part is reserved for short messages: long ones must not shut them out.
		limit := b.clients.bytes.Max()
		if b.taken > limit/256 {
			limit -= limit / 4
		}
		if full := b.clients.bytes.TakeBelow(int64(n), limit); full != nil {
			return 0, full
		}
		b.taken += int64(n)
	}
	if errors.Is(err, io.EOF) && !b.read {
		b.read = true
		b.deadline(0)
	}
	return n, err
}

// deadline bounds the time to send the body; 0 for no bound.
func (b *body) deadline(within time.Duration) {
	var at time.Time
	if within > 0 {
		at = time.Now().Add(within)
	}
	_ = b.control.SetReadDeadline(at) // fails without a network connection, where no client keeps it open
}

// afterwards bounds how long net/http reads an unused body.
const afterwards = time.Second

func (b *body) end() {
	b.clients.bytes.Release(b.taken)
	if !b.read {
		b.deadline(afterwards)
	}
}

// read reads a message, or answers the failure.
func (c *Clients) read(w http.ResponseWriter, r *http.Request) (message []byte, ok bool) {
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, c.messages.Max()))
	if err == nil {
		return message, true
	}
	status, reason := BodyStatus(err)
	if status == http.StatusRequestEntityTooLarge {
		_ = c.messages.Refuse() // counted
	}
	if status == http.StatusRequestTimeout {
		_ = c.slow.Refuse() // counted
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter)
	}
	http.Error(w, reason, status)
	return nil, false
}

// BodyStatus is the HTTP status and text for the error of a body that Guard or http.MaxBytesReader
// bounds. Any other error means that the client went away, and has 400.
func BodyStatus(err error) (status int, reason string) {
	var large *http.MaxBytesError
	var full *limit.Error
	switch {
	case errors.As(err, &large):
		size := fmt.Sprintf("%d bytes", large.Limit)
		if large.Limit%(1<<20) == 0 {
			size = fmt.Sprintf("%d MB", large.Limit>>20)
		}
		return http.StatusRequestEntityTooLarge, "the body is larger than " + size + ": send less at once"
	case errors.As(err, &full):
		return http.StatusServiceUnavailable, full.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, "the body did not arrive in time: send it without pauses"
	}
	return http.StatusBadRequest, "the body did not arrive: " + err.Error()
}

// retryAfter is the Retry-After header of a full server, in seconds.
const retryAfter = "5"

// Unavailable refuses a request because of a limit or of other replicas. again is its Retry-After
// header, in seconds.
func Unavailable(w http.ResponseWriter, err error, again string) {
	w.Header().Set("Retry-After", again)
	http.Error(w, err.Error(), fullStatus(err))
}

// fullStatus is the HTTP status of a limit's error: full for this client, or for all.
func fullStatus(err error) int {
	var full *limit.Error
	if errors.As(err, &full) && full.Own() {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}
