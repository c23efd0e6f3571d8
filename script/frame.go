package script

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A script's process and its parent talk in frames: a kind, and some texts. The
// parent begins with kindStart or kindQuery. The child then sends frames of the other kinds, and
// waits for a kindAnswer after each kindCalls and kindSearch.
const (
	kindStart  = 's' // order as JSON, source
	kindQuery  = 'j' // order as JSON, jq expression, the data that it is over
	kindLog    = 'l' // a line
	kindCalls  = 'c' // for each call: tool, arguments
	kindSearch = 'q' // query, limit
	kindAnswer = 'a' // the text of a limit or "", then for each request how it ended and what came
	kindResult = 'r' // the result of the script: none for None
	kindError  = 'e' // report as JSON
)

// How a request ended, in a kindAnswer.
const (
	endedNone  = "n" // without a value
	endedValue = "v"
	endedError = "e" // with the text of an error
)

// frame is one message between the two processes.
type frame struct {
	kind  byte
	texts [][]byte
}

// maxTexts bounds the texts of a frame.
const maxTexts = 100_000

// pipe is one end of the connection between the two processes. Reading and writing
// may go on at the same time, each by one goroutine.
type pipe struct {
	in  *bufio.Reader
	out *bufio.Writer
}

func newPipe(in io.Reader, out io.Writer) *pipe {
	return &pipe{bufio.NewReader(in), bufio.NewWriter(out)}
}

func (p *pipe) send(f frame) error {
	p.out.WriteByte(f.kind) // errors stay until Flush
	var size [4]byte
	number := func(n int) {
		binary.BigEndian.PutUint32(size[:], uint32(n))
		p.out.Write(size[:])
	}
	number(len(f.texts))
	for _, text := range f.texts {
		number(len(text))
		p.out.Write(text)
	}
	return p.out.Flush()
}

var errFrame = errors.New("the other process broke the protocol between the two")

// receive reads a frame of at most so many bytes.
func (p *pipe) receive(most int) (frame, error) {
	kind, err := p.in.ReadByte()
	if err != nil {
		return frame{}, err
	}
	number := func(most int) (int, error) {
		var size [4]byte
		if _, err := io.ReadFull(p.in, size[:]); err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint32(size[:])
		if int64(n) > int64(most) {
			return 0, fmt.Errorf("%w: %d of at most %d", errFrame, n, most)
		}
		return int(n), nil
	}
	count, err := number(maxTexts)
	if err != nil {
		return frame{}, err
	}
	f := frame{kind: kind}
	for range count {
		size, err := number(most)
		if err != nil {
			return frame{}, err
		}
		most -= size
		text := make([]byte, size)
		if _, err := io.ReadFull(p.in, text); err != nil {
			return frame{}, err
		}
		f.texts = append(f.texts, text)
	}
	return f, nil
}
