package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/trust"
	"toolfinch/wire"
)

// Stdio serves the one client at the other end of in and out: a message a line. It returns nil once
// the client has closed in, or ctx ended, and the requests in flight are answered,
// or cancelled after 10 s.
func Stdio(ctx context.Context, host Host, clients *Clients, in io.Reader, out io.Writer, log *slog.Logger) error {
	// The session outlives ctx for the time requests in flight get to end.
	ctx = trust.WithSource(ctx, trust.Source{Transport: trust.TransportStdio})
	s, err := clients.open(context.WithoutCancel(ctx), ctx, host, log, "stdio-"+rand.Text(), true, nil)
	if err != nil {
		return fmt.Errorf("stdio: %w", err)
	}
	defer s.close()
	p := newPipe(s, func(message []byte) error {
		_, err := out.Write(append(message, '\n'))
		return err
	})
	var forwarding sync.WaitGroup
	forwarding.Go(func() { p.forward(p.life, nil) })
	defer forwarding.Wait()
	defer p.finish()

	lines := make(chan []byte)
	ended := make(chan error, 1)
	// A read of stdin cannot be interrupted: this goroutine ends with the
	// process, or when the client closes its end.
	go func() { ended <- p.read(in, lines) }()
	for {
		select {
		case line := <-lines:
			p.receive(line, ctx)
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("stdin: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *pipe) read(in io.Reader, lines chan<- []byte) error {
	reader := bufio.NewReaderSize(in, 64<<10)
	longest := p.clients.messages
	for {
		line, _, err := wire.ReadLine(reader, int(longest.Max()))
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			refusal := wire.Refusal{Code: mcp.INVALID_REQUEST, Reason: longest.Refuse().Error()}
			_ = p.send(refusal.Answer())
			continue
		case err != nil:
			return err
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		select {
		case lines <- line:
		case <-p.life.Done():
			return io.EOF
		}
	}
}
