package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrLineTooLong is the error for a message longer than the limit. The rest of its line is skipped: the
// next one can be read.
var ErrLineTooLong = errors.New("message too long")

// headLength is the kept part of a long line, in bytes.
const headLength = 512

// ReadLine reads one line of at most limit bytes, without its line break. head is the beginning of a
// longer one.
func ReadLine(r *bufio.Reader, limit int) (line, head []byte, err error) {
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > limit; tooLong {
			if head == nil {
				head = bytes.Clone(append(line, part...)[:min(headLength, len(line)+len(part))])
			}
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return nil, nil, err
		case tooLong:
			return nil, head, ErrLineTooLong
		}
		for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
			line = line[:len(line)-1]
		}
		return line, nil, nil
	}
}
