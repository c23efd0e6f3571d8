package conn

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/wire"
)

// events reads server-sent events.
type events struct {
	in     *bufio.Reader
	most   int           // most bytes of an event
	lastID string        // of the last event with an ID
	retry  time.Duration // pause before the stream is requested again
}

// Bounds of the pause that a server asks for with retry. The lower bound also holds while the server asks for none.
const (
	defaultRetry = time.Second
	shortRetry   = 10 * time.Millisecond
	maxEventID   = 1 << 10 // bytes; longer IDs are ignored
)

// tooLong is the error of an event that is longer than MaxAnswer.
type tooLong struct{ head []byte } // the first bytes of its data

func (tooLong) Error() string { return ErrTooLarge.Error() }

// readers are reused, because most streams carry one answer.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 32<<10) }}

// read begins to read another response body of the same stream.
func (e *events) read(body io.Reader) {
	if e.in == nil {
		e.in = readers.Get().(*bufio.Reader)
	}
	e.in.Reset(&lineEnds{Reader: body})
}

// lineEnds makes LF of the line ends CR and CRLF.
type lineEnds struct {
	io.Reader
	cr bool // the last byte was CR
}

func (l *lineEnds) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if !l.cr && bytes.IndexByte(p[:n], '\r') < 0 {
		return n, err
	}
	kept := p[:0]
	for _, b := range p[:n] {
		was := l.cr
		if l.cr = b == '\r'; l.cr {
			b = '\n'
		} else if was && b == '\n' {
			continue
		}
		kept = append(kept, b)
	}
	return len(kept), err
}

// end must be called when nothing more is read.
func (e *events) end() {
	if e.in != nil {
		e.in.Reset(nil)
		readers.Put(e.in)
	}
}

// next returns the next event that has data. After an error of type tooLong, next goes on with the following event.
// An unfinished event is dropped, but for a whole message at the end of a stream: some servers end it without a blank
// line.
func (e *events) next() (kind string, data []byte, err error) {
	var id string
	var head []byte // not nil once the event is too long
	hasData, hasID := false, false
	for {
		line, lineHead, err := wire.ReadLine(e.in, e.most)
		if errors.Is(err, wire.ErrLineTooLong) {
			data, head = nil, append([]byte{}, fieldValue(lineHead)...)
			continue
		}
		last := errors.Is(err, io.EOF) && hasData && head == nil && json.Valid(data)
		if err != nil && !last {
			return "", nil, err
		}
		if line = bytes.TrimPrefix(line, byteOrderMark); len(line) == 0 {
			if hasID {
				e.lastID = id
			}
			switch {
			case head != nil:
				return "", nil, tooLong{head}
			case hasData:
				return kind, data, nil
			}
			kind, hasID = "", false
			continue
		}
		name, _, _ := bytes.Cut(line, []byte(":"))
		value := fieldValue(line)
		switch string(name) {
		case "data":
			switch {
			case head != nil:
			case len(data)+len(value) > e.most:
				head, data = bytes.Clone(data[:min(len(data), headLength)]), nil
			case hasData:
				data = append(append(data, '\n'), value...)
			default:
				hasData, data = true, value
			}
		case "event":
			kind = string(value)
		case "id":
			if len(value) <= maxEventID && bytes.IndexByte(value, 0) < 0 {
				id, hasID = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil && !strings.HasPrefix(string(value), "+") {
				e.retry = max(time.Duration(ms)*time.Millisecond, shortRetry)
			}
		}
	}
}

var byteOrderMark = []byte("\uFEFF")

// headLength is how many bytes of a too long event are kept, to find its request.
const headLength = 512

// fieldValue is the value of a line of an event.
func fieldValue(line []byte) []byte {
	_, value, _ := bytes.Cut(line, []byte(":"))
	return bytes.TrimPrefix(value, []byte(" "))
}
