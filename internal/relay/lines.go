package relay

import (
	"bufio"
	"errors"
	"io"
)

// bufferSize is what is read at once, in bytes.
const bufferSize = 64 << 10

// lines reads messages, one a line.
type lines struct {
	from *bufio.Reader
	max  int // bytes that are read of a line before it is passed on
	line []byte
}

// next returns the next line with its line break, which the last line may lack. whole is false if more of the line
// follows: see copyRest. The line is valid until the next call.
func (l *lines) next() (line []byte, whole bool, err error) {
	if cap(l.line) > bufferSize {
		l.line = nil // a long message is rare: its memory is given back
	}
	l.line = l.line[:0]
	for {
		part, err := l.from.ReadSlice('\n')
		if len(l.line) == 0 && err == nil {
			return part, true, nil
		}
		l.line = append(l.line, part...)
		switch {
		case err == nil:
			return l.line, true, nil
		case errors.Is(err, io.EOF) && len(l.line) > 0:
			return l.line, true, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		case len(l.line) >= l.max:
			return l.line, false, nil
		}
	}
}

// copyRest writes the rest of a line.
func (l *lines) copyRest(to io.Writer) error {
	for {
		part, err := l.from.ReadSlice('\n')
		if _, failed := to.Write(part); failed != nil {
			return failed
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
