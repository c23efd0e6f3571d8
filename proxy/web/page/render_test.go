package page

import (
	"strings"
	"testing"
	"time"

	"toolfinch/internal/telemetry"
)

func TestWhatIsHiddenIsSeen(t *testing.T) {
	for text, want := range map[string]string{
		"plain & <b>":    "plain &amp; &lt;b&gt;",
		"two\nlines\tok": "two\nlines\tok",
		"a\u202eb":       `a<span class="hidden-char" title="a hidden character">U+202E</span>b`,
		"a\x1b[2J":       `a<span class="hidden-char" title="a hidden character">U+001B</span>[2J`,
		"\U000e0041":     `<span class="hidden-char" title="a hidden character">U+E0041</span>`,
		"\xff":           `<span class="hidden-char" title="a hidden character">U+FFFD</span>`,
		"żółw 亀 🐢":       "żółw 亀 🐢",
	} {
		if got := string(seen(text)); got != want {
			t.Errorf("seen(%q) = %s, want %s", text, got, want)
		}
		if shown := revealed([]byte(text)); strings.ContainsFunc(string(shown), hides) {
			t.Errorf("revealed(%q) = %q", text, shown)
		}
	}
	if got := string(revealed([]byte(`<a title="a` + "\u202e" + `b">`))); got != `<a title="a⟨U+202E⟩b">` {
		t.Errorf("in an attribute: %s", got)
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -4500: "−4,500"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{40 * time.Microsecond: "40 µs", 1234 * time.Microsecond: "1.23 ms", 250 * time.Millisecond: "250 ms", 90 * time.Second: "90.00 s"} {
		if got := took(d); got != want {
			t.Errorf("took(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestPartsOfAList(t *testing.T) {
	for _, test := range []struct {
		p             pager
		first, last   int
		before, after string
	}{
		{pager{0, 50, 120, "list"}, 1, 50, "", "list?offset=50"},
		{pager{50, 50, 120, "list"}, 51, 100, "list?offset=0", "list?offset=100"},
		{pager{100, 50, 120, "list"}, 101, 120, "list?offset=50", ""},
		{pager{20, 50, 120, "list"}, 21, 70, "list?offset=0", "list?offset=70"},
	} {
		if p := test.p; p.First() != test.first || p.Last() != test.last || p.Before() != test.before || p.After() != test.after {
			t.Errorf("%+v: %d to %d, before %q, after %q", p, p.First(), p.Last(), p.Before(), p.After())
		}
	}
}

// The fullest minute fills the plot, and what failed is never too small to be seen.
func TestThePlotOfAnHour(t *testing.T) {
	hour := make([]Minute, 60)
	hour[3], hour[59] = Minute{All: 1000, Failed: 1}, Minute{All: 10, Failed: 10}
	p := plotOf(hour)
	if p.All != 1010 || p.Failed != 11 || p.Most != 1000 || len(p.Bars) != 2 {
		t.Fatalf("%+v", p)
	}
	full, last := p.Bars[0], p.Bars[1]
	if full.X != 30 || full.Y != 0 || full.Height != plotHeight || full.Bad < 1 || full.BadY+full.Bad != plotHeight {
		t.Errorf("the fullest minute is %+v", full)
	}
	if last.X != 590 || last.Height < 1 || last.Y+last.Height != plotHeight {
		t.Errorf("the last minute is %+v", last)
	}
	if p := plotOf(nil); len(p.Bars) != 0 || p.All != 0 {
		t.Errorf("of nobody: %+v", p)
	}
}

// What screens say of few things, or of none, is true.
func TestTemplatesCountRight(t *testing.T) {
	retrieval := func(searches int) live {
		return live{One: &operation{Operation: telemetry.Operation{Retrieval: &telemetry.Retrieval{Hits: 1, Searches: searches}}}}
	}
	further := func(got int) live {
		l := retrieval(1)
		l.Asked = []searched{{Search: telemetry.Search{Found: got}, Then: make([]found, 2), Further: make([]found, 1)}}
		return l
	}
	servers := func(states ...string) overview {
		o := overview{}
		for _, state := range states {
			o.Servers = append(o.Servers, Upstream{Name: "s", State: state})
			if state != StateDisabled {
				o.On, o.Ready = o.On+1, o.Ready+1
			}
		}
		return o
	}
	for _, test := range []struct {
		name    string
		of      *screen
		data    any
		says    string
		saysNot string
	}{
		{"no search", liveScreen, retrieval(0), "1 hit in 0 searches;", ""},
		{"a search", liveScreen, retrieval(1), "1 hit in 1 search;", ""},
		{"several searches", liveScreen, retrieval(2), "1 hit in 2 searches;", ""},
		{"all hits are kept", liveScreen, further(2), "1 hit that the client did not get", "the first 2"},
		{"more hits than are kept", liveScreen, further(12), "What the client got, the first 2 of 12 hits", "did not get"},
		{"a call that is gone", liveScreen, live{Gone: true, Done: []operation{{}}}, "not kept any more", `id="none"><h2>`},
		{"servers are ready", overviewScreen, servers("ready", StateDisabled), "Every server is ready", "is disabled"},
		{"servers are disabled", overviewScreen, servers(StateDisabled, StateDisabled), "Every server is disabled", "Every server is ready"},
	} {
		var out strings.Builder
		if err := parsed()[test.of.file].ExecuteTemplate(&out, "main", frame{Screen: test.of, Data: test.data}); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if html := out.String(); !strings.Contains(html, test.says) || test.saysNot != "" && strings.Contains(html, test.saysNot) {
			t.Errorf("%s:\n%s", test.name, html)
		}
	}
}
