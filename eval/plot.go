package eval

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// line is one curve of a plot.
type line struct {
	name   string
	recall []float64 // at 1, 2, ...; at least one
	bold   bool
}

// Plot draws the recall curve of every set, and their average in bold, as an
// SVG picture of 800 by 480 pixels. The report has at least one set.
func (r *Report) Plot() []byte {
	var lines []line
	var curves [][]float64
	queries := 0
	for _, s := range r.Sets {
		curves = append(curves, curve(s.Queries, s.Limit))
		lines = append(lines, line{name: s.Name, recall: curves[len(curves)-1]})
		queries += s.N
	}
	if len(lines) > 1 {
		lines = append(lines, line{name: "macro average", recall: averageCurve(curves), bold: true})
	}
	return plot(fmt.Sprintf("%s; embedder %s", scope(queries, len(r.Sets)), r.Sets[0].Embedder), lines)
}

// Plot draws the recall curves of both systems, averaged over the sets, on the
// queries that were compared, in the format of Report.Plot.
func (c *Comparison) Plot() []byte {
	var a, b [][]float64
	queries := 0
	for _, d := range c.Sets {
		a = append(a, curve(d.a, c.A.Limit))
		b = append(b, curve(d.b, c.B.Limit))
		queries += d.N
	}
	return plot(scope(queries, len(c.Sets)), []line{
		{name: stem(c.A.Name), recall: averageCurve(a)},
		{name: stem(c.B.Name), recall: averageCurve(b)},
	})
}

// stem is the name of a file without its folder and its extension.
func stem(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// scope says what the curves were measured on.
func scope(queries, sets int) string {
	if sets == 1 {
		return plural(queries, "query")
	}
	return fmt.Sprintf("macro average over %d sets, %s", sets, plural(queries, "query"))
}

// The axes span these pixels.
const (
	left, right = 72, 570
	top, bottom = 80, 416
)

// colours are those of Okabe and Ito that are dark enough on white; they can be
// told apart without seeing red or green. From the second round on lines are dashed.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}

// mark is a place on an axis, or a row of the legend.
type mark struct {
	At    float64
	Label string
	Style string
	Bold  bool
}

type drawn struct {
	Style  string
	Points []string
}

// labels are the words around the axes.
type labels struct{ title, caption, x, y, legend string }

// Chart draws the curves, each with a value for every place of the x axis, on a y axis
// from 0, in the format of Report.Plot. bold is the name of one that stands out.
func Chart(title, caption, x, y string, places []string, curves map[string][]float64, bold string) []byte {
	var lines []line
	highest := .0
	for _, name := range slices.Sorted(maps.Keys(curves)) {
		lines = append(lines, line{name: name, recall: curves[name], bold: name == bold})
		highest = max(highest, slices.Max(curves[name]))
	}
	step := .2
	for highest/step > 10 {
		step *= 2
	}
	high := step * math.Ceil(highest/step)
	at := func(i int) float64 {
		return round(left + (right-left)*float64(i)/float64(max(1, len(places)-1)))
	}
	height := func(value float64) float64 { return round(bottom - (bottom-top)*value/high) }
	var values, ranks []mark
	for i := 0; float64(i)*step < high+step/2; i++ {
		values = append(values, mark{At: height(float64(i) * step), Label: fmt.Sprintf("%.1f", float64(i)*step)})
	}
	for i, place := range places {
		ranks = append(ranks, mark{At: at(i), Label: place})
	}
	return draw(labels{title, caption, x, y, "at " + places[len(places)-1]}, lines, values, ranks, len(places),
		func(k int) float64 { return at(k - 1) }, height)
}

// plot draws lines of recall.
func plot(caption string, lines []line) []byte {
	limit, common := 0, math.MaxInt // common: where all lines have a value
	low, high := 1.0, 0.0
	for _, l := range lines {
		limit, common = max(limit, len(l.recall)), min(common, len(l.recall))
		low, high = min(low, slices.Min(l.recall)), max(high, slices.Max(l.recall))
	}
	// Whole tenths around the curves, and at least two of them.
	low, high = max(0, math.Floor(low*10-1e-9)/10), min(1, math.Ceil(high*10+1e-9)/10)
	if high-low < .2 {
		low = max(0, high-.2)
		high = low + .2
	}
	x := func(k int) float64 {
		if limit < 2 {
			return (left + right) / 2
		}
		return round(left + (right-left)*float64(k-1)/float64(limit-1))
	}
	y := func(recall float64) float64 { return round(bottom - (bottom-top)*(recall-low)/(high-low)) }

	var tenths, ranks []mark
	for tenth := math.Round(low * 10); tenth <= math.Round(high*10); tenth++ {
		tenths = append(tenths, mark{At: y(tenth / 10), Label: fmt.Sprintf("%.1f", tenth/10)})
	}
	steps := []int{1, 2, 5, 10}
	step := steps[max(0, slices.IndexFunc(steps, func(step int) bool { return limit/step <= 12 }))]
	for k := 1; k <= limit; k++ {
		if k == 1 || k%step == 0 {
			ranks = append(ranks, mark{At: x(k), Label: fmt.Sprint(k)})
		}
	}
	words := labels{"Recall by number of tools in the answer", caption, "k, tools in the answer",
		"recall@k, share of the relevant tools found", fmt.Sprintf("recall@%d", common)}
	return draw(words, lines, tenths, ranks, common, x, y)
}

// draw draws lines, bold ones on top, with a legend in the order of their values at
// common, with x of a place from 1 on and y of a value.
func draw(words labels, lines []line, tenths, ranks []mark, common int, x func(int) float64, y func(float64) float64) []byte {
	var legend []mark
	var curves, boldOnes []drawn
	for i, l := range lines {
		style := fmt.Sprintf(`stroke="%s" stroke-width="2"`, colours[i%len(colours)])
		if again := i / len(colours); again > 0 {
			style += fmt.Sprintf(` stroke-dasharray="%d 4"`, 4*again+2)
		}
		if l.bold {
			style = `stroke="#1a1a1a" stroke-width="4"`
		}
		curve := drawn{Style: style}
		for k, recall := range l.recall {
			curve.Points = append(curve.Points, fmt.Sprintf("%g,%g", x(k+1), y(recall)))
		}
		if len(curve.Points) == 1 {
			curve.Points = append(curve.Points, curve.Points[0]) // its round ends make a dot
		}
		if l.bold {
			boldOnes = append(boldOnes, curve)
		} else {
			curves = append(curves, curve)
		}
		end := l.recall[common-1]
		legend = append(legend, mark{At: end, Label: fmt.Sprintf("%.2f %s", end, shorten(l.name, 17)), Style: style, Bold: l.bold})
	}
	slices.SortStableFunc(legend, func(a, b mark) int { return cmp.Compare(b.At, a.At) })
	const most = 16 // as many as there is room for
	more := max(0, len(legend)-most)
	legend = legend[:len(legend)-more]
	for i := range legend {
		legend[i].At = float64(top + 24 + 20*i)
	}
	return svg(words, tenths, ranks, append(curves, boldOnes...), legend, more)
}

// svg writes the picture, with the legend on the right of the axes. It does not use
// text/template: the linker keeps every exported method of a program that executes
// templates, which makes this one 5 MB larger.
func svg(words labels, tenths, ranks []mark, curves []drawn, legend []mark, more int) []byte {
	var out bytes.Buffer
	put := func(format string, values ...any) { fmt.Fprintf(&out, format+"\n", values...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" width="800" height="480" viewBox="0 0 800 480" role="img" ` +
		`font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13" fill="#1a1a1a">`)
	put(`<title>%s</title>`, html.EscapeString(words.title))
	put(`<rect width="800" height="480" fill="#ffffff"/>`)
	put(`<text x="72" y="34" font-size="17" font-weight="600">%s</text>`, html.EscapeString(words.title))
	put(`<text x="72" y="55" fill="#595959">%s</text>`, html.EscapeString(words.caption))
	for _, m := range tenths {
		put(`<line x1="72" y1="%[1]v" x2="570" y2="%[1]v" stroke="#e3e3e3"/>`, m.At)
		put(`<text x="62" y="%v" dy="4.5" text-anchor="end">%s</text>`, m.At, m.Label)
	}
	put(`<line x1="72" y1="416" x2="570" y2="416" stroke="#1a1a1a"/>`)
	for _, m := range ranks {
		put(`<line x1="%[1]v" y1="416" x2="%[1]v" y2="421" stroke="#1a1a1a"/>`, m.At)
		put(`<text x="%v" y="437" text-anchor="middle">%s</text>`, m.At, m.Label)
	}
	put(`<text x="321" y="462" text-anchor="middle">%s</text>`, html.EscapeString(words.x))
	put(`<text x="24" y="248" text-anchor="middle" transform="rotate(-90 24 248)">%s</text>`, html.EscapeString(words.y))
	for _, c := range curves {
		put(`<polyline fill="none" stroke-linejoin="round" stroke-linecap="round" %s points="%s "/>`, c.Style, strings.Join(c.Points, " "))
	}
	put(`<text x="594" y="84" font-weight="600">%s</text>`, html.EscapeString(words.legend))
	for _, m := range legend {
		weight := ""
		if m.Bold {
			weight = ` font-weight="600"`
		}
		put(`<line x1="594" y1="%[1]v" x2="618" y2="%[1]v" %[2]s/>`, m.At, m.Style)
		put(`<text x="626" y="%v" dy="4.5"%s>%s</text>`, m.At, weight, html.EscapeString(m.Label))
	}
	if more > 0 {
		put(`<text x="594" y="428">and %d more</text>`, more)
	}
	put(`</svg>`)
	return out.Bytes()
}

func round(pixels float64) float64 { return math.Round(10*pixels) / 10 }

// shorten cuts a name to n characters. Names of files and sets differ at the
// end at least as often as at the start, so the middle goes.
func shorten(name string, n int) string {
	if utf8.RuneCountInString(name) <= n {
		return name
	}
	runes := []rune(name)
	head := (n - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(n-1-head):])
}
