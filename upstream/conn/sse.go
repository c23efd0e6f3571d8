package conn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"toolfinch/internal/discovery"
)

// sse is the channel of the HTTP+SSE transport (revision 2024-11-05): one stream carries all messages of the server,
// and names the endpoint to post messages to.
type sse struct {
	*sender
	endpoint string // set before open returns
}

// ErrForeign tells that a server named an endpoint of another origin, which must not get our headers and their
// secrets.
var ErrForeign = errors.New("its event stream names an endpoint at another origin, which is not followed: configure the URL of that origin")

func (s *sse) open(ctx context.Context) error {
	if s.fault != nil {
		return s.fault
	}
	c := s.conn
	// The stream lives as long as the connection, so it cannot have the dialling's
	// context; that one ends the connection while the stream is being opened.
	opening := context.AfterFunc(ctx, func() { c.stop(context.Cause(ctx)) })
	defer opening()
	response, end, err := s.do(c.Life, http.MethodGet, c.options.URL, typeEvents, nil, nil)
	if err == nil {
		if err = statusOf(response); err != nil {
			end()
		}
	}
	if err != nil {
		return c.explain(err, false)
	}
	named := make(chan string, 1)
	c.Go(func() {
		defer end()
		e := &events{most: c.most}
		defer e.end()
		e.read(response.Body)
		err := s.takeAll(e, nil, func(kind string, data []byte) {
			if kind == "endpoint" {
				select {
				case named <- string(data):
				default: // a second endpoint is ignored
				}
			}
		})
		c.log.Debug("the event stream has ended", "error", err)
		c.Fail(fmt.Errorf("%w: the event stream ended", ErrClosed))
	})
	patience := time.NewTimer(c.options.ConnectTimeout)
	defer patience.Stop()
	select {
	case endpoint := <-named:
		s.endpoint, err = s.resolve(endpoint)
		return err
	case <-patience.C:
		return fmt.Errorf("its event stream has named no endpoint within %s", c.options.ConnectTimeout)
	case <-c.Life.Done():
		return context.Cause(c.Life)
	}
}

// resolve returns the URL of the endpoint that the server named.
func (s *sse) resolve(named string) (string, error) {
	own, err := url.Parse(s.conn.options.URL)
	if err != nil {
		return "", errBadURL
	}
	to, err := own.Parse(named)
	switch {
	case err != nil:
		return "", errors.New("its event stream names an endpoint that is no URL")
	case discovery.Origin(to) != discovery.Origin(own):
		return "", fmt.Errorf("%w (%s)", ErrForeign, discovery.Origin(to))
	}
	return to.String(), nil
}

func (s *sse) send(ctx context.Context, message []byte, header http.Header, reply *Reply) error {
	if reply != nil {
		reply.sent.Store(true)
	}
	response, end, err := s.do(ctx, http.MethodPost, s.endpoint, typeJSON, message, header)
	if err != nil {
		return err
	}
	defer end()
	err = statusOf(response)
	if reply == nil || err == nil {
		return err
	}
	reply.status, reply.proto = response.StatusCode, response.Proto
	s.conn.fail(reply.ID, err)
	return nil
}

func (s *sse) close() { s.client.CloseIdleConnections() }
