package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/identity"
)

// Filter selects lines. A text must match whole, but case is ignored; * matches any text, and "" matches all.
// Principal is an ID, or the label of several keys. The zero Filter selects all lines.
type Filter struct {
	Principal, Tool, Event, Outcome string
	Since                           time.Time
}

// Wants reports whether the filter selects a line. Tool matches the tool's ID, or the client's name for the tool.
func (f *Filter) Wants(l *Line) bool {
	principal := ""
	if l.Principal != nil {
		principal = l.Principal.ID
	}
	who := matches(f.Principal, principal) || matches(f.Principal, identity.Label(principal))
	return who && (matches(f.Tool, l.Tool) || matches(f.Tool, l.Name)) &&
		matches(f.Event, l.Event) && matches(f.Outcome, l.Outcome) && !l.Time.Before(f.Since)
}

func matches(want, is string) bool {
	if want == "" {
		return true
	}
	// path.Match does not let * match a slash, which has no meaning here.
	plain := strings.NewReplacer("/", "\x00", `\`, "\x01", "[", "\x02", "?", "\x03")
	ok, err := path.Match(strings.ToLower(plain.Replace(want)), strings.ToLower(plain.Replace(is)))
	return ok && err == nil
}

// Scan yields the selected lines of files, with their text, in order. It skips text that is no line. It ends with the
// first error of yield.
func Scan(files []string, f Filter, yield func(l *Line, text []byte) error) error {
	for _, file := range files {
		if err := scan(file, f, yield); err != nil {
			return err
		}
	}
	return nil
}

func scan(path string, f Filter, yield func(l *Line, text []byte) error) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = linesFrom(file, 0, f, yield)
	return err
}

// Last yields the last n selected lines of files.
func Last(files []string, n int, f Filter, yield func(l *Line, text []byte) error) error {
	type one struct {
		line Line
		text []byte
	}
	var found []one // the last n
	for i := len(files) - 1; i >= 0 && len(found) < n; i-- {
		var of []one
		err := scan(files[i], f, func(l *Line, text []byte) error {
			if of = append(of, one{*l, text}); len(of) >= 2*n {
				of = append(of[:0:0], of[len(of)-n:]...)
			}
			return nil
		})
		if err != nil {
			return err
		}
		found = append(of, found...)
	}
	for _, one := range found[max(0, len(found)-n):] {
		if err := yield(&one.line, one.text); err != nil {
			return err
		}
	}
	return nil
}

// followEvery is the pause between reads.
const followEvery = 200 * time.Millisecond

// Followed reads a log while it is written.
type Followed struct {
	path  string
	file  *os.File // nil: the file does not exist yet
	at    int64    // the offset of the next line
	aside []string // rotated files that were read, or are older than the start
}

// Follow begins after the last line of a log. Call Run to read new lines.
func Follow(path string) (*Followed, error) {
	f := &Followed{path: path}
	file, err := os.Open(path)
	f.aside = rotated(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.file, f.at = file, info.Size()
	return f, nil
}

// Run yields the selected lines, until ctx ends or yield fails.
func (f *Followed) Run(ctx context.Context, filter Filter, yield func(l *Line, text []byte) error) error {
	defer func() {
		if f.file != nil {
			_ = f.file.Close()
		}
	}()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := f.read(filter, yield); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// read yields the new lines, even of new files.
func (f *Followed) read(filter Filter, yield func(l *Line, text []byte) error) error {
	now, _ := os.Stat(f.path) // nil: not there yet, or just renamed
	var mine os.FileInfo
	var err error
	if f.file != nil {
		if mine, err = f.file.Stat(); err != nil {
			return err
		}
		if f.at, err = linesFrom(f.file, f.at, filter, yield); err != nil {
			return err
		}
	}
	if now == nil || mine != nil && os.SameFile(mine, now) {
		return nil
	}
	next, err := os.Open(f.path)
	if err != nil {
		return nil // the next read tries again
	}
	opened, err := next.Stat()
	if err != nil {
		return errors.Join(err, next.Close())
	}
	read := f.file
	f.file, f.at = next, 0
	if read != nil {
		_ = read.Close()
	}
	aside := rotated(f.path) // it may have been rotated several times
	for _, path := range aside {
		info, err := os.Stat(path)
		if err != nil || slices.Contains(f.aside, path) || mine != nil && os.SameFile(info, mine) || os.SameFile(info, opened) {
			continue
		}
		if err := scan(path, filter, yield); err != nil {
			return err
		}
	}
	f.aside = aside
	return nil
}

// linesFrom yields the selected lines of a file from an offset, and returns the offset after the last
// whole line.
func linesFrom(file io.ReaderAt, at int64, f Filter, yield func(l *Line, text []byte) error) (int64, error) {
	reader := bufio.NewReaderSize(io.NewSectionReader(file, at, math.MaxInt64-at), 64<<10)
	for {
		text, n, err := readLine(reader)
		switch {
		case errors.Is(err, io.EOF):
			return at, nil
		case err != nil:
			return at, err
		}
		at += int64(n)
		if l, ok := parse(text); ok && f.Wants(&l) {
			if err := yield(&l, text); err != nil {
				return at, err
			}
		}
	}
}

// maxLine bounds a line, in bytes; our lines are shorter.
const maxLine = 512 << 10

// readLine reads a line of n bytes, and returns it without its line break. A line that is longer than maxLine is not
// ours: it is cut. At the end of the file it returns io.EOF.
func readLine(reader *bufio.Reader) (text []byte, n int, err error) {
	for {
		part, err := reader.ReadSlice('\n')
		if n += len(part); len(text) <= maxLine {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(text, []byte{'\n'}), n, err
		}
	}
}
