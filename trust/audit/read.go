package audit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// Filter says which lines are wanted. Texts are compared whole and without regard to
// case, * stands for anything; "" is any. The zero Filter wants all.
type Filter struct {
	Principal, Client, Session, View, Server, Tool, Event, Outcome string
	Since, Until                                                   time.Time
}

// Wants reports whether a line passes. Tool is the ID of a tool or what it was called by.
func (f *Filter) Wants(l *Line) bool {
	principal, client := "", ""
	if l.Principal != nil {
		principal = l.Principal.ID
	}
	if l.Client != nil {
		client = l.Client.Name
	}
	for _, one := range []struct{ want, is string }{
		{f.Principal, principal}, {f.Client, client}, {f.Session, l.Session}, {f.View, l.View}, {f.Server, l.Server},
		{f.Event, l.Event}, {f.Outcome, l.Outcome},
	} {
		if !matches(one.want, one.is) {
			return false
		}
	}
	return (matches(f.Tool, l.Tool) || matches(f.Tool, l.Name)) &&
		(f.Since.IsZero() || !l.Time.Before(f.Since)) && (f.Until.IsZero() || l.Time.Before(f.Until))
}

func matches(want, is string) bool {
	if want == "" {
		return true
	}
	// A slash means nothing here, but path.Match lets * not pass one.
	plain := strings.NewReplacer("/", "\x00", `\`, "\x01", "[", "\x02", "?", "\x03")
	ok, err := path.Match(strings.ToLower(plain.Replace(want)), strings.ToLower(plain.Replace(is)))
	return ok && err == nil
}

// Scan yields the wanted lines of files, with their text, in their order. Lines that are
// none of a log are passed over: Verify is there for them. An error of yield ends it.
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
	if errors.Is(err, fs.ErrNotExist) { // removed since it was found
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 64<<10)
	for {
		text, err := readLine(reader)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if l, ok := parse(text); ok && f.Wants(&l) {
			if err := yield(&l, text); err != nil {
				return err
			}
		}
	}
}

// Last yields the last n wanted lines of files, and returns the last sequence number
// that there is.
func Last(files []string, n int, f Filter, yield func(l *Line, text []byte) error) (last uint64, err error) {
	type one struct {
		line Line
		text []byte
	}
	var found []one // the last n
	for i := len(files) - 1; i >= 0 && (len(found) < n || last == 0); i-- {
		var of []one
		err := Scan(files[i:i+1], Filter{}, func(l *Line, text []byte) error {
			last = max(last, l.Seq)
			if f.Wants(l) {
				if of = append(of, one{*l, text}); len(of) >= 2*n {
					of = append(of[:0:0], of[len(of)-n:]...)
				}
			}
			return nil
		})
		if err != nil {
			return last, err
		}
		found = append(of, found...)
	}
	for _, one := range found[max(0, len(found)-n):] {
		if err := yield(&one.line, one.text); err != nil {
			return last, err
		}
	}
	return last, nil
}

// followEvery is how often Follow looks for lines.
const followEvery = 200 * time.Millisecond

// Follow yields the wanted lines after line last of the log at file, as they are
// written, until ctx ends or yield fails.
func Follow(ctx context.Context, file string, last uint64, f Filter, yield func(l *Line, text []byte) error) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var at int64 // how much of the file was read
	var of os.FileInfo
	for {
		now, err := os.Stat(file)
		if err == nil && (of == nil || !os.SameFile(of, now)) { // rotated: what came before that is elsewhere
			at = 0
			for _, old := range rotated(file) {
				if seqOf(old) > last {
					if _, err := follow(old, 0, &last, f, yield); err != nil {
						return err
					}
				}
			}
			of = now
		}
		if err == nil && now.Size() > at {
			if at, err = follow(file, at, &last, f, yield); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow yields the lines of a file from an offset on that are after line last. It
// returns the offset behind the last whole line.
func follow(path string, at int64, last *uint64, f Filter, yield func(l *Line, text []byte) error) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return at, nil // rotated or removed at this moment
	}
	defer file.Close()
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return at, err
	}
	reader := bufio.NewReaderSize(file, 64<<10)
	for {
		text, err := readLine(reader)
		switch {
		case errors.Is(err, io.EOF):
			return at, nil
		case err != nil:
			return at, err
		}
		at += int64(len(text)) + 1
		if l, ok := parse(text); ok && l.Seq > *last {
			*last = l.Seq
			if f.Wants(&l) {
				if err := yield(&l, text); err != nil {
					return at, err
				}
			}
		}
	}
}
