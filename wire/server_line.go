package wire

import (
	"bufio"
	"errors"
	"io"
)

// ErrLineTooLong is returned for a message longer than the limit. The rest of
// its line has been read and thrown away: the next one can be read.
var ErrLineTooLong = errors.New("message too long")

// ReadLine reads one line of at most limit bytes, without its line break.
func ReadLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > limit; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		case tooLong:
			return nil, ErrLineTooLong
		}
		for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
			line = line[:len(line)-1]
		}
		return line, nil
	}
}
