package cluster

import (
	"context"
	"net"
)

// DialBy has other replicas dialled by dial. It is called before any request.
func (h *Homes) DialBy(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	h.hands.DialContext = dial
}

// HangUp ends the connections to other replicas that carry nothing.
func (h *Homes) HangUp() { h.hands.CloseIdleConnections() }
