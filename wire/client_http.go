package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
)

// RoundTripper passes the bodies of an HTTP upstream through tap. Requests
// whose context comes from Outgoing are sent with its message for their body.
func RoundTripper(base http.RoundTripper, tap *Tap) http.RoundTripper {
	return roundTripper{base, tap}
}

type roundTripper struct {
	base http.RoundTripper
	tap  *Tap
}

type outgoing struct {
	message []byte
	reply   *Reply
}

type outgoingKey struct{}

// Outgoing returns a context for one SendRequest or SendNotification of
// mcp-go: what is posted is message as it is, not what the library made.
// reply is nil for a notification.
func Outgoing(ctx context.Context, message []byte, reply *Reply) context.Context {
	return context.WithValue(ctx, outgoingKey{}, outgoing{message, reply})
}

// maxText is how much is read of a body that is no message, in bytes: mcp-go
// makes an error of it.
const maxText = 4 << 10

func (t roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	out, _ := request.Context().Value(outgoingKey{}).(outgoing)
	reply := out.reply
	if out.message != nil && request.Method == http.MethodPost {
		request = withBody(request, out.message)
	}
	if reply != nil {
		reply.sent.Store(true)
	}
	standing := reply == nil && request.Method == http.MethodGet
	if standing && t.tap.Opening != nil {
		if err := t.tap.Opening(request.Context()); err != nil {
			return nil, err
		}
	}
	response, err := t.send(request)
	if err != nil {
		var op *net.OpError
		if reply != nil && errors.As(err, &op) && op.Op == "dial" {
			reply.sent.Store(false)
		}
		if standing && t.tap.Ended != nil {
			t.tap.Ended()
		}
		return nil, err
	}
	if reply != nil {
		reply.status.Store(int32(response.StatusCode))
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case kind == "application/json" && !redirects(response):
		t.readMessage(response, reply)
	case kind == "text/event-stream" && response.StatusCode < 300:
		e := &events{body: response.Body, in: bufio.NewReaderSize(response.Body, 32<<10), tap: t.tap, reply: reply}
		if standing {
			e.ended = t.tap.Ended
		}
		response.Body = e
	default:
		if reply != nil && response.StatusCode >= 300 && !redirects(response) {
			t.tap.Fail(reply.id, &StatusError{response.StatusCode})
		}
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxText), response.Body}
	}
	return response, nil
}

// send sends a request, and a second time when the server refuses the protocol
// version and names the very same among those that it supports.
func (t roundTripper) send(request *http.Request) (*http.Response, error) {
	response, err := t.base.RoundTrip(request)
	version := request.Header.Get(mcp.HeaderProtocolVersion)
	if err != nil || response.StatusCode != http.StatusBadRequest || request.GetBody == nil || !mcp.IsModernProtocol(version) {
		return response, err
	}
	head, err := io.ReadAll(io.LimitReader(response.Body, maxText))
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	var refusal struct {
		Error struct {
			Code int
			Data struct{ Supported []string }
		}
	}
	if json.Unmarshal(head, &refusal) != nil || refusal.Error.Code != mcp.UNSUPPORTED_PROTOCOL_VERSION ||
		!slices.Contains(refusal.Error.Data.Supported, version) {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), response.Body), response.Body}
		return response, nil
	}
	_ = response.Body.Close()
	request = request.WithContext(request.Context()) // a copy: the original is not ours to change
	if request.Body, err = request.GetBody(); err != nil {
		return nil, err
	}
	return t.base.RoundTrip(request)
}

// redirects reports whether a response says where the request is to be sent
// instead: net/http decides whether it is.
func redirects(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return response.Header.Get("Location") != ""
	}
	return false
}

func withBody(request *http.Request, message []byte) *http.Request {
	if request.Body != nil {
		_ = request.Body.Close()
	}
	request = request.WithContext(request.Context()) // a copy: the original is not ours to change
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(message)), nil }
	request.Body, _ = request.GetBody()
	request.ContentLength = int64(len(message))
	return request
}

// readMessage takes the one message of a body. With reply, if not nil, it is
// done afterwards.
func (t roundTripper) readMessage(response *http.Response, reply *Reply) {
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswer+1))
	_ = response.Body.Close()
	if err == nil && len(body) > MaxAnswer {
		err = ErrTooLarge
	}
	var forward []byte
	if err == nil {
		var valid bool
		if forward, valid = t.tap.filterOn(reply.stream(), body); !valid {
			err, forward = ErrNotMessage, body[:min(len(body), maxText)]
		}
	}
	if reply != nil {
		forward = stub(reply.id)
		t.tap.conclude(reply, body, response.StatusCode, err)
	}
	response.Body = io.NopCloser(bytes.NewReader(forward))
	response.ContentLength = int64(len(forward))
	response.Header.Del("Content-Length")
}

// conclude ends reply if the body that came for it has not.
func (t *Tap) conclude(reply *Reply, body []byte, status int, err error) {
	failure := rawjson.Member(body, "error")
	switch {
	case err == nil && len(failure) > 0 && failure[0] == '{' && isNull(rawjson.Member(body, "id")):
		// The upstream refused the request before it had read its ID.
		if t.take(reply.id) != nil {
			reply.Error, reply.NoID = bytes.Clone(failure), true
			close(reply.Done)
		}
	case status >= 300:
		t.Fail(reply.id, &StatusError{status})
	case err != nil:
		t.Fail(reply.id, err)
	default:
		t.Fail(reply.id, ErrWrongID)
	}
}

// events is an event stream whose messages pass through a tap. Fields other
// than data, and events without data, stay: the library resumes by them.
type events struct {
	body  io.Closer
	in    *bufio.Reader
	tap   *Tap
	reply *Reply // of the request that the stream answers, or nil
	ended func() // may be nil
	rest  []byte
	err   error
}

func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		if e.rest, e.err = e.event(); e.err != nil && e.ended != nil {
			e.ended()
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// event reads one event and returns what the library sees of it.
func (e *events) event() ([]byte, error) {
	var fields bytes.Buffer
	var data, head []byte
	kind, hasData, tooLong := "", false, false
	for {
		line, lineHead, err := readLine(e.in, MaxAnswer)
		switch {
		case errors.Is(err, ErrLineTooLong):
			tooLong, data, head = true, nil, dataOf(lineHead)
			continue
		case err != nil:
			return nil, err // an event that was not finished does not count
		case len(line) == 0:
			if tooLong {
				return e.finish(&fields, kind, nil, false), e.tooLong(head)
			}
			return e.finish(&fields, kind, data, hasData), nil
		}
		name, _, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "data":
			if tooLong {
				continue
			}
			if value := dataOf(line); len(data)+len(value) > MaxAnswer {
				tooLong, data, head = true, nil, bytes.Clone(data[:min(len(data), headLength)])
			} else {
				if hasData {
					data = append(data, '\n')
				}
				hasData, data = true, append(data, value...)
			}
			continue
		case "event":
			kind = string(dataOf(line))
		}
		if fields.Len()+len(line) < maxText {
			fields.Write(line)
			fields.WriteByte('\n')
		}
	}
}

// dataOf is the value of a line of an event.
func dataOf(line []byte) []byte {
	_, value, _ := bytes.Cut(line, []byte(":"))
	return bytes.TrimPrefix(value, []byte(" "))
}

// tooLong ends whoever waits for an event that was too long to keep. If that
// is the one request of this stream, so does the stream.
func (e *events) tooLong(head []byte) error {
	if e.reply != nil && rawjson.Member(head, "method") == nil {
		e.tap.Fail(e.reply.id, ErrTooLarge)
		return ErrTooLarge
	}
	e.tap.failHead(head)
	return nil
}

func (e *events) finish(fields *bytes.Buffer, kind string, data []byte, hasData bool) []byte {
	if hasData {
		switch {
		case kind == "" || kind == "message":
			data, _ = e.tap.filterOn(e.reply.stream(), data)
		case kind == "endpoint" && e.tap.Endpoint != nil:
			e.tap.Endpoint(string(data))
		}
		if data != nil {
			fields.WriteString("data: ")
			fields.Write(rawjson.OneLine(data))
			fields.WriteByte('\n')
		}
	}
	if fields.Len() == 0 {
		return nil
	}
	fields.WriteByte('\n')
	return fields.Bytes()
}

func (e *events) Close() error { return e.body.Close() }
