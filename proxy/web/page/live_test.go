package page

import (
	"net/url"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/telemetry"
)

func TestTheFilterOfLive(t *testing.T) {
	echo := &telemetry.Operation{Kind: identity.EventCall, Server: "everything", Tool: "everything.echo", Name: "everything_echo", Client: "agent 1.0", Outcome: identity.Success}
	denied := &telemetry.Operation{Kind: identity.EventCall, Server: "files", Tool: "files.write_file", Name: "files_write_file", Principal: "key|ci", Outcome: identity.Denied, Reason: "by a policy"}
	runs := &telemetry.Operation{Kind: identity.EventRetrieve, Name: "retrieve_tools"}
	for _, test := range []struct {
		query                 string
		echo, denied, running bool
	}{
		{"", true, true, true},
		{"server=files", false, true, false},
		{"q=ECHO", true, false, false},
		{"q=agent", true, false, false},
		{"outcome=success", true, false, false},
		{"outcome=unsuccessful", false, true, false},
		{"q=policy", false, true, false},
		{"q=key|ci", false, true, false},
		{"q=retrieve", false, false, true},
		{"q=echo&server=files", false, false, false},
	} {
		values := must.Get(url.ParseQuery(test.query))(t)
		f := filterOf(values)
		for _, one := range []struct {
			o    *telemetry.Operation
			want bool
		}{{echo, test.echo}, {denied, test.denied}, {runs, test.running}} {
			if got := f.takes(one.o, nil); got != one.want {
				t.Errorf("%q takes %s: %v", test.query, one.o.Name, got)
			}
		}
		if link := must.Get(url.Parse(f.Link()))(t); filterOf(link.Query()) != f {
			t.Errorf("%q becomes %q", test.query, link)
		}
	}
}

func TestStagesAsBars(t *testing.T) {
	o := operation{Operation: telemetry.Operation{Duration: 100 * time.Millisecond, Stages: []telemetry.Stage{
		{Name: telemetry.StagePolicy, Start: 0, Duration: time.Millisecond},
		{Name: telemetry.StageHook, Start: 10 * time.Millisecond, Duration: 80 * time.Millisecond},
		{Name: telemetry.StageUpstream, Start: 20 * time.Millisecond, Duration: 50 * time.Millisecond},
		{Name: telemetry.StageHold, Start: 100 * time.Millisecond, Duration: telemetry.Unfinished},
	}}}
	want := []struct {
		x, width float64
		inside   int
	}{{0, 10, 0}, {100, 800, 0}, {200, 500, 1}, {996, 4, 0}}
	for i, bar := range o.Bars() {
		if bar.X != want[i].x || bar.Width != want[i].width || bar.Inside != want[i].inside {
			t.Errorf("%s is at %v, %v wide, within %d; want %v", bar.Name, bar.X, bar.Width, bar.Inside, want[i])
		}
	}
	if empty := (operation{}).Bars(); empty != nil {
		t.Errorf("without stages there are bars: %v", empty)
	}
}
