package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"toolfinch/internal/printable"
)

// console is a stream for people. Every command prints through it. Names, descriptions and errors are texts of other
// people, so it writes invisible characters as escapes, on terminals and in pipes. JSON keeps its value, because in
// JSON strings these escapes stand for the same characters.
type console struct {
	w io.Writer

	mu   sync.Mutex // guards rest; held over writes to w
	rest []byte     // unwritten end of the last Write: a part of a character, or a carriage return
}

// unfiltered returns the stream below a console, for the protocol and for terminal control.
func unfiltered(w io.Writer) io.Writer {
	if c, ok := w.(*console); ok {
		return c.w
	}
	return w
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := append(c.rest, p...)
	end := len(text) - incomplete(text)
	c.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(c.w, visible(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes the rest.
func (c *console) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.w, visible(string(c.rest)))
	c.rest = nil
}

// incomplete counts the last bytes of text that the next Write may complete.
func incomplete(text []byte) int {
	if n := len(text); n > 0 && text[n-1] == '\r' {
		return 1
	}
	for n := 1; n <= min(utf8.UTFMax, len(text)); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// visible replaces invisible characters by escapes: characters that control a terminal, change the direction of text,
// join or hide other characters, or have no width. Tabs and line ends stay.
func visible(text string) string {
	i := 0
	for i < len(text) && (' ' <= text[i] && text[i] < unicode.MaxASCII || text[i] == '\n' || text[i] == '\t') {
		i++
	}
	if i == len(text) {
		return text
	}
	var out strings.Builder
	out.WriteString(text[:i])
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\r' && strings.HasPrefix(text[i+1:], "\n"):
			out.WriteByte('\r')
		case r == utf8.RuneError:
			out.WriteRune(r)
		case r == '\n', r == '\t', !printable.Hidden(r):
			out.WriteString(text[i : i+size])
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		i += size
	}
	return out.String()
}
