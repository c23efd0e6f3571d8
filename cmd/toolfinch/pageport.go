package main

import (
	"context"
	"net"
	"sync"

	"toolfinch/configs"
	"toolfinch/proxy"
)

// pagePort serves the page of a running toolfinch: at its HTTP address, or at a port that is opened for the first link.
type pagePort struct {
	proxy   *proxy.Proxy
	life    context.Context // of the port
	serving *sync.WaitGroup // of the goroutine that serves the port

	mu sync.Mutex // guards at
	at string     // address of the page; "stdio" before the first link
}

// link returns the URL of a link to the page.
func (p *pagePort) link(here bool) (string, error) {
	path, err := p.proxy.UILink(here)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == configs.TransportStdio && p.life.Err() == nil {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		p.at = listener.Addr().String()
		p.serving.Go(func() { _ = p.proxy.ServePage(p.life, listener) })
	}
	return pageURL(p.at, path), nil
}
