package proxy

import (
	"net"
	"net/http"
	"testing"
)

func TestConnectionsLeaveDescriptorsToServers(t *testing.T) {
	for descriptors, want := range map[int64]int64{20: 16, 256: 128, 1024: 704, 1 << 20: maxConnections} {
		if got := connectionsOf(descriptors); got != want {
			t.Errorf("of %d descriptors, %d are for connections, want %d", descriptors, got, want)
		}
	}
}

// closing notes that it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestPastTheBoundTheLongestSilentConnectionEnds(t *testing.T) {
	c := newConnections()
	all := make([]*closing, c.bound.Max()+3)
	for i := range all {
		all[i] = &closing{}
	}
	room := len(all) - 3
	for i, conn := range all[:room] {
		c.told(conn, http.StateNew)
		if i != 1 && i != 2 {
			c.told(conn, http.StateActive)
		}
	}
	c.told(all[3], http.StateIdle) // silent for a shorter time than 1 and 2
	for i, ends := range []int{1, 2, 3} {
		c.told(all[room+i], http.StateNew)
		c.told(all[room+i], http.StateActive)
		if !all[ends].closed {
			t.Errorf("connection %d still is", ends)
		}
	}
	late := &closing{}
	c.told(late, http.StateNew)
	if !late.closed || c.bound.Used() != c.bound.Max() || c.bound.Hits() != 4 {
		t.Errorf("without a silent one: closed %t, %d of %d, %d hits", late.closed, c.bound.Used(), c.bound.Max(), c.bound.Hits())
	}
	for i, conn := range all {
		if conn.closed != (i >= 1 && i <= 3) {
			t.Errorf("connection %d: closed %t", i, conn.closed)
		}
	}
}
