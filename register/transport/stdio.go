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
	"syscall"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/wire"
)

// Stdio serves the one client over in and out, one message a line. It returns nil when the client has
// closed either or ctx has ended, and requests in flight are answered or cancelled: after 10 s in the
// first case, 300 ms in the second, because agents kill a process 2 s after SIGTERM.
func Stdio(ctx context.Context, host Host, clients *Clients, in io.Reader, out io.Writer, log *slog.Logger) error {
	// The session outlives ctx while requests in flight end.
	ctx = identity.WithSource(ctx, identity.Source{Transport: identity.TransportStdio})
	s, err := clients.open(context.WithoutCancel(ctx), ctx, host, log, "stdio-"+rand.Text(), true, nil)
	if err != nil {
		return fmt.Errorf("stdio: %w", err)
	}
	defer s.close()
	ended, broken := make(chan error, 1), make(chan error, 1)
	p := newPipe(s, func(message []byte) error {
		_, err := out.Write(append(message, '\n'))
		if err != nil {
			select {
			case broken <- err:
			default: // the first cause stays
			}
		}
		return err
	})
	p.lasting.Go(func() { p.forward(p.life, nil) })
	defer p.finish(ctx.Done())

	// A read of stdin and a write to a client that does not read cannot be interrupted: this goroutine
	// ends with the process, or when the client closes its end.
	go func() { ended <- p.read(in, ctx) }()
	select {
	case err := <-ended:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("stdin: %w", err)
	case err := <-broken:
		if errors.Is(err, syscall.EPIPE) {
			return nil
		}
		return fmt.Errorf("stdout: %w", err)
	case <-ctx.Done():
		return nil
	}
}

// read takes messages until the client closes its end, or the session ends.
func (p *pipe) read(in io.Reader, from context.Context) error {
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
		if p.life.Err() != nil {
			return io.EOF
		}
		p.receive(line, from)
	}
}
