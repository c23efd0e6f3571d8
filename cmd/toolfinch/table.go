package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/text/width"

	"toolfinch/internal/rawjson"
)

// screen describes the output. The zero screen is a file or a pipe: nothing is cut or coloured.
type screen struct {
	terminal bool
	columns  int  // 0: lines are not cut
	rows     int  // 0: unknown
	colour   bool // false if NO_COLOR is set
}

func screenOf(w io.Writer) screen {
	f, ok := unfiltered(w).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return screen{}
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 20 {
		columns = 0
	}
	return screen{
		terminal: true,
		columns:  columns,
		rows:     rows,
		colour:   os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// Text styles, as SGR parameters.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

// paint styles text if the screen has colours.
func (s screen) paint(code, text string) string {
	if !s.colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// table prints rows in aligned columns.
type table struct {
	head   []string // nil for none
	indent string   // before each line
	rows   [][]string
	whole  bool // the last column is never cut
	// paint, if set, returns the style of a cell; "" for none.
	paint func(row, column int) string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table, with each cell on one line. Cells are cut to fit a terminal's width, the last column first.
// Elsewhere only cells before the last column are cut, at maxCell.
func (t *table) print(w io.Writer) error {
	return t.printOn(w, screenOf(w))
}

const (
	gap     = 2   // spaces between two columns of a table
	minLast = 10  // least width of the last column
	minCell = 8   // least width of another column
	maxCell = 128 // most width of another column
)

func (t *table) printOn(w io.Writer, on screen) error {
	rows := t.rows
	if t.head != nil {
		rows = append([][]string{t.head}, rows...)
	}
	cells := make([][]string, len(rows))
	var widths []int
	for i, row := range rows {
		for j, cell := range row {
			cell = visible(oneLine(cell))
			cells[i] = append(cells[i], cell)
			if j == len(widths) {
				widths = append(widths, 0)
			}
			widths[j] = max(widths[j], columnsOf(cell))
		}
	}
	t.fit(widths, on.columns)
	var out strings.Builder
	for i, row := range cells {
		t.line(&out, on, i, row, widths)
	}
	_, err := io.WriteString(unfiltered(w), out.String())
	return err
}

// fit narrows the columns of a table to the width of the screen; 0 for any width.
func (t *table) fit(widths []int, columns int) {
	last := len(widths) - 1
	if last < 0 {
		return
	}
	before := len(t.indent) + last*gap
	for j := range widths[:last] {
		widths[j] = min(widths[j], maxCell)
		before += widths[j]
	}
	if columns == 0 || t.whole {
		return
	}
	for left := min(widths[last], minLast); before+left > columns; before-- {
		widest := slices.Index(widths[:last], slices.Max(widths[:last]))
		if widths[widest] <= minCell {
			break
		}
		widths[widest]--
	}
	widths[last] = max(minLast, columns-before)
}

// line writes one line. It leaves out empty cells at the end.
func (t *table) line(out *strings.Builder, on screen, line int, row []string, widths []int) {
	for len(row) > 0 && row[len(row)-1] == "" {
		row = row[:len(row)-1]
	}
	out.WriteString(t.indent)
	for j, cell := range row {
		cell = cut(cell, widths[j])
		out.WriteString(on.paint(t.colour(line, j), cell))
		if j < len(row)-1 {
			out.WriteString(strings.Repeat(" ", widths[j]+gap-columnsOf(cell)))
		}
	}
	out.WriteByte('\n')
}

// colour returns a cell's style. line counts the heading, if there is one.
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

// columnsOf returns the width of text on a terminal.
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

// wrap breaks a text into lines of at most these columns, at spaces where it can.
func wrap(text string, columns int) (lines []string) {
	start, space, n := 0, -1, 0 // of the line: its first byte, its last space, its columns
	for i, r := range text {
		n += columnsOfRune(r)
		if n > columns && i > start {
			end := i
			if space > start+columns/2 {
				end = space
			}
			lines = append(lines, text[start:end])
			if start = end; text[start] == ' ' {
				start++
			}
			n = 0
			if start <= i {
				n = columnsOf(text[start:i]) + columnsOfRune(r)
			}
		}
		if r == ' ' {
			space = i
		}
	}
	return append(lines, text[start:])
}

// printJSON writes a value as indented JSON. Raw JSON in the value keeps its numbers and its order.
func printJSON(w io.Writer, value any) error {
	return rawjson.Write(w, value, "  ")
}

// minute formats a time for a table; "never" for none.
func minute(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.Local().Format("2006-01-02 15:04")
}

// withJSON adds the flag --json to a command.
func withJSON(cmd *cobra.Command, usage string) *cobra.Command {
	cmd.Flags().Bool("json", false, usage)
	return cmd
}

// asJSON reports whether the command has the flag --json, and is given it.
func asJSON(cmd *cobra.Command) bool {
	on, _ := cmd.Flags().GetBool("json")
	return on
}

// show prints a list as JSON or as a table. It prints none instead of an empty table.
func show(cmd *cobra.Command, value any, t *table, none string) error {
	switch {
	case asJSON(cmd):
		return printJSON(cmd.OutOrStdout(), value)
	case len(t.rows) == 0:
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), none)
		return err
	}
	return t.print(cmd.OutOrStdout())
}
