package group

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Messages is one end of a connection to our own process: JSON, one message a line. One goroutine may
// send and one receive at the same time.
type Messages struct {
	in  *bufio.Reader
	out *json.Encoder
}

// NewMessages returns the end that reads in and writes out.
func NewMessages(in io.Reader, out io.Writer) *Messages {
	m := &Messages{bufio.NewReaderSize(in, 64<<10), json.NewEncoder(out)}
	m.out.SetEscapeHTML(false)
	return m
}

// Errors of Receive, beside read errors.
var (
	ErrLong      = errors.New("a message is too long")
	ErrNoMessage = errors.New("a line is no message")
)

// Send writes a message.
func (m *Messages) Send(message any) error { return m.out.Encode(message) }

// Receive reads a message of up to most bytes. It does not trust the other end.
func (m *Messages) Receive(message any, most int) error {
	var line []byte
	for {
		part, err := m.in.ReadSlice('\n')
		if line = append(line, part...); len(line) > most {
			return fmt.Errorf("%w: more than %d bytes", ErrLong, most)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == nil && json.Unmarshal(line, message) != nil {
			err = fmt.Errorf("%w: %.200q", ErrNoMessage, line)
		}
		return err
	}
}
