package eval

import (
	"cmp"
	"encoding/xml"
	"fmt"
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

// The picture, in pixels. What is right of the axes is the legend.
const (
	plotWidth, plotHeight = 800, 480
	left, right           = 72, 570
	top, bottom           = 80, 416
)

// colours are those of Okabe and Ito that are dark enough on white; they can be
// told apart without seeing red or green. From the second round on lines are dashed.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}

const ink = "#1a1a1a"

func plot(caption string, lines []line) []byte {
	p := &picture{low: 1}
	best := 0.0
	for _, l := range lines {
		p.limit = max(p.limit, len(l.recall))
		p.low = min(p.low, slices.Min(l.recall))
		best = max(best, slices.Max(l.recall))
	}
	// Whole tenths around the curves, and at least two of them.
	p.low = max(0, math.Floor(p.low*10-1e-9)/10)
	p.high = min(1, math.Ceil(best*10+1e-9)/10)
	if p.high-p.low < .2 {
		p.low = max(0, p.high-.2)
		p.high = p.low + .2
	}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" `+
		`font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13" fill="%s">`+"\n",
		plotWidth, plotHeight, ink)
	p.printf(`<title>Recall by number of tools in the answer</title>` + "\n")
	p.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, plotHeight)
	p.text(left, 34, `font-size="17" font-weight="600"`, "Recall by number of tools in the answer")
	p.text(left, 55, `fill="#595959"`, caption)
	p.axes()
	p.curves(lines)
	p.printf("</svg>\n")
	return []byte(p.svg.String())
}

// picture is a plot in the making: the SVG so far, and what the axes span.
type picture struct {
	svg       strings.Builder
	limit     int
	low, high float64
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(&p.svg, format, args...) }

func (p *picture) text(x, y float64, attributes, text string) {
	p.printf(`<text x="%.1f" y="%.1f" %s>`, x, y, attributes)
	_ = xml.EscapeText(&p.svg, []byte(text)) // a strings.Builder takes everything
	p.printf("</text>\n")
}

func (p *picture) x(k int) float64 {
	if p.limit < 2 {
		return (left + right) / 2
	}
	return left + (right-left)*float64(k-1)/float64(p.limit-1)
}

func (p *picture) y(recall float64) float64 {
	return bottom - (bottom-top)*(recall-p.low)/(p.high-p.low)
}

func (p *picture) axes() {
	for tenth := math.Round(p.low * 10); tenth <= math.Round(p.high*10); tenth++ {
		y := p.y(tenth / 10)
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e3e3e3"/>`+"\n", left, y, right, y)
		p.text(left-10, y+4.5, `text-anchor="end"`, fmt.Sprintf("%.1f", tenth/10))
	}
	p.printf(`<line x1="%d" y1="%d" x2="%d" y2="%[2]d" stroke="%[4]s"/>`+"\n", left, bottom, right, ink)
	step := 1
	for _, step = range []int{1, 2, 5, 10} {
		if p.limit/step <= 12 {
			break
		}
	}
	for k := 1; k <= p.limit; k++ {
		if k > 1 && k%step != 0 {
			continue
		}
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/>`+"\n", p.x(k), bottom, p.x(k), bottom+5, ink)
		p.text(p.x(k), bottom+21, `text-anchor="middle"`, fmt.Sprint(k))
	}
	p.text((left+right)/2, bottom+46, `text-anchor="middle"`, "k, tools in the answer")
	middle := float64(top+bottom) / 2
	p.text(24, middle, fmt.Sprintf(`text-anchor="middle" transform="rotate(-90 24 %.1f)"`, middle), "recall@k, share of the relevant tools found")
}

// curves draws the lines, bold ones on top, and a legend in the order in which
// they end.
func (p *picture) curves(lines []line) {
	style := make([]string, len(lines))
	colour := make([]string, len(lines))
	next := 0
	for i, l := range lines {
		if l.bold {
			colour[i] = ink
			style[i] = fmt.Sprintf(`stroke="%s" stroke-width="4"`, ink)
			continue
		}
		colour[i] = colours[next%len(colours)]
		style[i] = fmt.Sprintf(`stroke="%s" stroke-width="2"`, colour[i])
		if round := next / len(colours); round > 0 {
			style[i] += fmt.Sprintf(` stroke-dasharray="%d 4"`, 4*round+2)
		}
		next++
	}
	draw := func(bold bool) {
		for i, l := range lines {
			if l.bold == bold {
				p.curve(l, style[i], colour[i])
			}
		}
	}
	draw(false)
	draw(true)

	common := p.limit // where all lines have a value
	for _, l := range lines {
		common = min(common, len(l.recall))
	}
	end := func(i int) float64 { return lines[i].recall[common-1] }
	order := make([]int, len(lines))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(end(j), end(i)) })
	const most = 17 // as many as there is room for
	p.text(right+24, top+4, `font-weight="600"`, fmt.Sprintf("recall@%d", common))
	for n, i := range order {
		y := float64(top + 28 + 20*n)
		if n == most-1 && len(order) > most {
			p.text(right+24, y, "", fmt.Sprintf("and %d more", len(order)-n))
			break
		}
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" %s/>`+"\n", right+24, y-4.5, right+48, y-4.5, style[i])
		weight := ""
		if lines[i].bold {
			weight = `font-weight="600"`
		}
		p.text(right+56, y, weight, fmt.Sprintf("%.2f %s", end(i), shorten(lines[i].name, 17)))
	}
}

func (p *picture) curve(l line, style, colour string) {
	p.printf(`<polyline fill="none" stroke-linejoin="round" stroke-linecap="round" %s points="`, style)
	for k, recall := range l.recall {
		p.printf("%.1f,%.1f ", p.x(k+1), p.y(recall))
	}
	p.printf(`"/>` + "\n")
	for k, recall := range l.recall {
		if p.limit <= 20 { // more dots would hide the line
			p.printf(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", p.x(k+1), p.y(recall), colour)
		}
	}
}

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
