package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// screen is what is known of where output goes. The zero screen is a file or a
// pipe: all is printed, and plainly.
type screen struct {
	terminal bool
	columns  int  // 0: lines are not cut
	colour   bool // of a terminal, where NO_COLOR is not set
}

func screenOf(w io.Writer) screen {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return screen{}
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 20 {
		columns = 0
	}
	return screen{
		terminal: true,
		columns:  columns,
		colour:   os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// The colours in use, as SGR parameters.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

// paint colours text where colours are.
func (s screen) paint(code, text string) string {
	if !s.colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// safe is foreign text as it may be shown: on a terminal without the characters
// that steer it.
func (s screen) safe(text string) string {
	if !s.terminal {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// table is aligned columns under a heading.
type table struct {
	head   []string // nil for none
	indent string   // before each line
	rows   [][]string
	// paint, if set, is the colour of a cell, "" for none.
	paint func(row, column int) string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table. Cells are foreign text, so each becomes one line; on a
// terminal the last column is cut where the line would be too long.
func (t *table) print(w io.Writer) error {
	return t.printOn(w, screenOf(w))
}

func (t *table) printOn(w io.Writer, on screen) error {
	const gap = 2
	rows := t.rows
	if t.head != nil {
		rows = append([][]string{t.head}, rows...)
	}
	var widths []int
	cells := make([][]string, len(rows))
	for i, row := range rows {
		for j, cell := range row {
			cell = on.safe(oneLine(cell))
			cells[i] = append(cells[i], cell)
			if j == len(widths) {
				widths = append(widths, 0)
			}
			widths[j] = max(widths[j], columnsOf(cell))
		}
	}
	before := len(t.indent) // columns left of the last cell
	for _, width := range widths[:max(0, len(widths)-1)] {
		before += width + gap
	}
	var out strings.Builder
	for i, row := range cells {
		end := len(row)
		for end > 0 && row[end-1] == "" {
			end--
		}
		out.WriteString(t.indent)
		for j, cell := range row[:end] {
			if j == len(widths)-1 && on.columns > 0 {
				cell = cut(cell, max(10, on.columns-before))
			}
			space := ""
			if j < end-1 {
				space = strings.Repeat(" ", widths[j]+gap-columnsOf(cell))
			}
			out.WriteString(on.paint(t.colour(i, j), cell) + space)
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// colour of a cell; line counts the heading.
func (t *table) colour(line, column int) string {
	if t.head != nil {
		if line == 0 {
			return bold
		}
		line--
	}
	if t.paint == nil {
		return ""
	}
	return t.paint(line, column)
}

// columnsOf is how wide text is on a terminal.
func columnsOf(text string) int {
	n := 0
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut shortens text to a number of columns.
func cut(text string, columns int) string {
	if columnsOf(text) <= columns {
		return text
	}
	n := 0
	for i, r := range text {
		if n += columnsOfRune(r); n > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// printJSON writes a value as indented JSON. Raw JSON in it keeps its numbers
// and its order.
func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}
