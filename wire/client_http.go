package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
)

// RoundTripper passes the bodies of an HTTP upstream through tap.
func RoundTripper(base http.RoundTripper, tap *Tap) http.RoundTripper {
	return roundTripper{base, tap}
}

type roundTripper struct {
	base http.RoundTripper
	tap  *Tap
}

func (t roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswer+1))
		response.Body.Close()
		if err != nil {
			return nil, err
		}
		if len(body) > MaxAnswer {
			return nil, ErrTooLarge
		}
		forward := t.tap.Filter(bytes.TrimSpace(body))
		response.Body = io.NopCloser(bytes.NewReader(forward))
		response.ContentLength = int64(len(forward))
		response.Header.Del("Content-Length")
	case "text/event-stream":
		response.Body = &events{body: response.Body, in: bufio.NewReaderSize(response.Body, 32<<10), tap: t.tap}
	}
	return response, nil
}

// events is an event stream whose messages pass through a tap. Fields other
// than data, and events without data, stay: the library resumes by them.
type events struct {
	body io.Closer
	in   *bufio.Reader
	tap  *Tap
	rest []byte
	err  error
}

func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.rest, e.err = e.event()
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// event reads one event and returns what the library sees of it.
func (e *events) event() ([]byte, error) {
	var fields strings.Builder
	var data []byte
	kind, hasData := "", false
	for {
		line, _, err := readLine(e.in, MaxAnswer)
		if errors.Is(err, ErrLineTooLong) || err == nil && len(data)+len(line) > MaxAnswer {
			return nil, ErrTooLarge
		}
		if err != nil {
			return nil, err // an event that was not finished does not count
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			data = append(data, value...)
			hasData = true
			continue
		case "event":
			kind = string(value)
		}
		fields.Write(line)
		fields.WriteByte('\n')
	}
	if hasData {
		if kind == "" || kind == "message" {
			data = e.tap.Filter(data)
		}
		if data != nil {
			fields.WriteString("data: ")
			fields.Write(OneLine(data))
			fields.WriteByte('\n')
		}
	}
	if fields.Len() == 0 {
		return nil, nil
	}
	fields.WriteByte('\n')
	return []byte(fields.String()), nil
}

func (e *events) Close() error { return e.body.Close() }
