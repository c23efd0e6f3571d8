// Package pipes lets tests serve HTTP over pipes in memory, because testing/synctest allows no sockets.
// Only tests import it.
package pipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

var (
	hosts sync.Map // *listener by its host
	last  atomic.Int64
)

// Install makes clones of http.DefaultTransport dial listeners of this package, and other addresses as
// usual.
func Install() { http.DefaultTransport.(*http.Transport).DialContext = Dial }

// NewServer returns a server over pipes. It ends with its test.
func NewServer(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	_ = s.Listener.Close()
	s.Listener = Listen(NewHost())
	s.Start()
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// NewHost returns an unused host.
func NewHost() string {
	n := last.Add(1)
	return fmt.Sprintf(network+"%d.%d", n>>8, n&255)
}

// network is the hosts' network: loopback, because only there is http allowed everywhere.
const network = "127.77."

// Nowhere is the URL of a missing server.
const Nowhere = "http://" + network + "255.255"

// Listen listens at a host of NewHost.
func Listen(host string) net.Listener {
	l := &listener{host: host, accepted: make(chan net.Conn), closed: make(chan struct{})}
	hosts.Store(host, l)
	return l
}

// Dial dials a listener of this package, or another address as usual.
func Dial(ctx context.Context, kind, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	if !strings.HasPrefix(host, network) {
		return new(net.Dialer).DialContext(ctx, kind, address)
	}
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	found, ok := hosts.Load(host)
	if !ok {
		return nil, refused
	}
	l := found.(*listener)
	here, there := net.Pipe()
	server, client := l.Addr(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(1024 + last.Add(1)%60_000)}
	select {
	case l.accepted <- end{there, server, client}:
		return end{here, client, server}, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// end is an end of a connection with TCP's errors and addresses.
type end struct {
	net.Conn
	local, remote net.Addr
}

func (e end) LocalAddr() net.Addr  { return e.local }
func (e end) RemoteAddr() net.Addr { return e.remote }

func (e end) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "pipe", Err: syscall.EPIPE}
	}
	return n, err
}

type listener struct {
	host     string
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		hosts.CompareAndDelete(l.host, l)
		close(l.closed)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(l.host), Port: 80} }
