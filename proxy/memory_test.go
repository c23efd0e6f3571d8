package proxy_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// memory is a network within the process: nothing of it waits for the kernel, so a proxy
// with its servers and clients fits into a bubble of testing/synctest.
type memory struct {
	mu    sync.Mutex // guards doors; not held over anything
	doors map[string]*door
}

// door is where one listens on a network.
type door struct {
	addr *net.TCPAddr
	come chan net.Conn
	shut chan struct{}
	once sync.Once

	mu    sync.Mutex // guards conns; not held over anything
	conns []net.Conn // its sides of all that came in
}

// end is one side of a connection; it is of this machine.
type end struct {
	net.Conn
	addr *net.TCPAddr
}

func (e end) LocalAddr() net.Addr  { return e.addr }
func (e end) RemoteAddr() net.Addr { return e.addr }

// listen opens an address, or one that was closed.
func (m *memory) listen(address string) *door {
	d := &door{addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1000}, come: make(chan net.Conn), shut: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doors == nil {
		m.doors = map[string]*door{}
	}
	m.doors[address] = d
	return d
}

// install has connections to servers, which use a clone of the default, dial on the network
// until the test ends.
func (m *memory) install(t *testing.T) {
	usual := http.DefaultTransport
	http.DefaultTransport = m.transport()
	t.Cleanup(func() { http.DefaultTransport = usual })
}

func (m *memory) dial(ctx context.Context, network, address string) (net.Conn, error) {
	m.mu.Lock()
	d := m.doors[address]
	m.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	if d == nil {
		return nil, refused
	}
	here, there := net.Pipe()
	select {
	case d.come <- end{there, d.addr}:
		return end{here, d.addr}, nil
	case <-d.shut:
		return nil, refused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// transport dials only on the network.
func (m *memory) transport() *http.Transport {
	return &http.Transport{DialContext: m.dial, MaxIdleConnsPerHost: 64}
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.come:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.conns = append(d.conns, c)
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *door) Addr() net.Addr { return d.addr }

func (d *door) Close() error {
	d.once.Do(func() { close(d.shut) })
	return nil
}

// kill is the end of the process that listens: all its connections end.
func (d *door) kill() {
	_ = d.Close()
	d.mu.Lock()
	conns := slices.Clone(d.conns)
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}
