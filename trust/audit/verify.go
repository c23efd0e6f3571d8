package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"toolfinch/rawjson"
	"toolfinch/trust"
)

// Finding is something that is wrong with a log.
type Finding struct {
	File string // as it was given
	Line int    // 0: of the file as a whole
	What string
}

// Verified is what Verify found.
type Verified struct {
	Lines       int
	First, Last uint64 // sequence numbers
	Hash        string // of Last
	Findings    []Finding
	// Begins says that what was before First is not there: whether it was unaltered
	// cannot be said.
	Begins string
}

// Verify checks files of a log, the oldest first, with its key. What was altered,
// removed, inserted or moved is a finding. With whole, files are all of the log at file: the
// end must then be where it was left, and what is missing at the start must have been
// removed by the log itself. expected, if not "", is the "NUMBER:HASH" of a line that
// there must be. The error says which file could not be read.
func Verify(key []byte, files []string, whole, expected string) (Verified, error) {
	v := &verifier{key: key, gone: map[uint64]string{}, expected: expected}
	for _, file := range files {
		if err := v.file(file); err != nil {
			return v.Verified, err
		}
	}
	v.doubts()
	v.gaps()
	v.begins(whole != "")
	if whole != "" {
		v.ends(whole)
	}
	if v.expected != "" && !v.met {
		v.find(v.at, "there is no line %s", rawjson.Clip(expected, maxName))
	}
	return v.Verified, nil
}

// verifier reads lines in their order.
type verifier struct {
	Verified
	key      []byte
	expected string
	met      bool // expected was there
	last     head
	bad      []place           // lines that are not intact, since the last one that was
	holes    []hole            // missing sequence numbers
	gone     map[uint64]string // the last lines of files that the log removed, with their hashes
	start    string            // prev of the first line
	at       place
}

type place struct {
	file string
	line int
}

// hole is a range of sequence numbers before a line.
type hole struct {
	place
	from, to uint64
	moved    map[uint64]bool // of them, those that are elsewhere
}

func (v *verifier) find(at place, format string, args ...any) {
	v.Findings = append(v.Findings, Finding{at.file, at.line, fmt.Sprintf(format, args...)})
}

func (v *verifier) file(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 64<<10)
	for n := 1; ; n++ {
		text, err := readLine(reader)
		at := place{path, n}
		switch {
		case errors.Is(err, io.EOF) && len(text) == 0:
			return nil
		case errors.Is(err, io.EOF):
			v.find(at, "the line is not finished: a crash, or it was cut")
			return nil
		case err != nil:
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
		v.line(at, text)
	}
}

// readLine reads a line without its line break; of one that is too long only the
// beginning. At the end of the file it returns what there is, and io.EOF.
func readLine(reader *bufio.Reader) (text []byte, err error) {
	for {
		part, err := reader.ReadSlice('\n')
		if len(text) <= maxLine {
			text = append(text, part...)
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(text, []byte{'\n'}), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return text, err
		}
	}
}

func (v *verifier) line(at place, text []byte) {
	v.Lines++
	l, ok := parse(text)
	if !ok || !intact(v.key, text) {
		v.bad = append(v.bad, at)
		return
	}
	v.at = at
	if v.expected == fmt.Sprintf("%d:%s", l.Seq, l.Hash) {
		v.met = true
	}
	if l.Event == trust.EventRemoved {
		if seq, err := strconv.ParseUint(l.Details["last_seq"], 10, 64); err == nil {
			v.gone[seq] = l.Details["last_hash"]
		}
	}
	if v.last.seq == 0 {
		v.First, v.start = l.Seq-min(l.Seq-1, uint64(len(v.bad))), l.Prev
		if len(v.bad) > 0 {
			v.start = ""
		}
		v.doubts()
		v.last = head{l.Seq, l.Hash}
		return
	}
	bad := uint64(len(v.bad))
	switch next := v.last.seq + 1; {
	case l.Seq < next:
		v.moved(at, l.Seq)
		v.doubts()
		return
	case l.Seq == next && l.Prev != v.last.hash:
		v.find(at, "line %d does not follow the line before: it is from another log, or the log was written after a part of it was put back", l.Seq)
		v.doubts()
	case l.Seq == next:
		for _, one := range v.bad {
			v.find(one, "a line was inserted, between the lines %d and %d", v.last.seq, l.Seq)
		}
		v.bad = nil
	case l.Seq <= next+bad:
		v.doubts() // those that are missing are among them
	default:
		v.doubts()
		v.holes = append(v.holes, hole{at, next + bad, l.Seq - 1, map[uint64]bool{}})
	}
	v.last = head{l.Seq, l.Hash}
}

// doubts reports the lines that are not intact as altered.
func (v *verifier) doubts() {
	for i, one := range v.bad {
		seq := ""
		if v.last.seq > 0 {
			seq = fmt.Sprintf(" (line %d of the log)", v.last.seq+uint64(i)+1)
		}
		v.find(one, "the line was altered%s: its hash is not that of its text", seq)
	}
	v.bad = nil
}

// moved reports an intact line that is behind a later one.
func (v *verifier) moved(at place, seq uint64) {
	for _, h := range v.holes {
		if h.from <= seq && seq <= h.to && !h.moved[seq] {
			h.moved[seq] = true
			v.find(at, "line %d was moved here, behind line %d", seq, v.last.seq)
			return
		}
	}
	v.find(at, "line %d is here once more, behind line %d", seq, v.last.seq)
}

// gaps reports what is missing and is not elsewhere.
func (v *verifier) gaps() {
	for _, h := range v.holes {
		if missing := h.to - h.from + 1 - uint64(len(h.moved)); missing > 0 {
			v.find(h.place, "%s missing before this line", lines(h.from, h.to, missing))
		}
	}
	v.Last, v.Hash = v.last.seq, v.last.hash
}

func lines(from, to, missing uint64) string {
	switch {
	case from == to:
		return fmt.Sprintf("line %d is", from)
	case missing < to-from+1:
		return fmt.Sprintf("%d of the lines %d to %d are", missing, from, to)
	}
	return fmt.Sprintf("the lines %d to %d are", from, to)
}

// begins looks at what was before the first line.
func (v *verifier) begins(whole bool) {
	if v.First <= 1 {
		return
	}
	removed, byLog := v.gone[v.First-1]
	switch {
	case byLog && (v.start == "" || removed == v.start):
		v.Begins = fmt.Sprintf("the lines before %d were removed by the log itself, as configured (keep)", v.First)
	case whole:
		v.find(place{v.at.file, 0}, "the lines 1 to %d are missing, and the log did not remove them", v.First-1)
	default:
		v.Begins = fmt.Sprintf("the lines before %d are not in these files", v.First)
	}
}

// ends compares the end with where the log was left.
func (v *verifier) ends(file string) {
	at := place{file, 0}
	left, ok := readHead(file+headSuffix, v.key)
	switch {
	case !ok && v.Lines > 0:
		v.find(at, "%s is missing or altered: whether lines are missing at the end cannot be said", file+headSuffix)
	case left.seq > v.last.seq:
		v.find(at, "%s missing at the end", lines(v.last.seq+1, left.seq, left.seq-v.last.seq))
	}
}
