package demo

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	run(t, connect(t, "clock", t.TempDir()), []call{
		{tool: "convert_time", arguments: `{"time":"2026-03-02T09:00:00","from":"Europe/Berlin","to":"Asia/Tokyo"}`,
			want: `{"time":"2026-03-02T17:00:00+09:00","zone":"Asia/Tokyo","weekday":"Monday"}`},
		{tool: "convert_time", arguments: `{"time":"2026-07-02 23:30","from":"America/New_York","to":"Asia/Kolkata"}`, has: []string{`"2026-07-03T09:00:00+05:30"`}},
		{tool: "convert_time", arguments: `{"time":"2026-07-02T12:00:00-07:00","from":"Asia/Tokyo","to":"UTC"}`, has: []string{`"2026-07-02T19:00:00Z"`}},
		{tool: "convert_time", arguments: `{"time":"yesterday","to":"UTC"}`, fails: "2026-03-02T09:00:00"},
		{tool: "convert_time", arguments: `{"time":"now","to":"Tokyo"}`, fails: "did you mean Asia/Tokyo"},
		{tool: "convert_time", arguments: `{"time":"now","to":"Local"}`, fails: "no time zone"},
		{tool: "convert_time", arguments: `{"time":"now","to":"../etc/passwd"}`, fails: "no time zone"},

		{tool: "add_duration", arguments: `{"time":"2026-01-31","months":1}`, has: []string{`"2026-02-28T00:00:00Z"`}},
		{tool: "add_duration", arguments: `{"time":"2024-02-29","years":1}`, has: []string{`"2025-02-28T00:00:00Z"`}},
		{tool: "add_duration", arguments: `{"time":"2026-01-01","months":-2,"weeks":1,"days":-1}`, has: []string{`"2025-11-07T00:00:00Z"`}},
		// A night in which clocks go forward: a day is not 24 hours.
		{tool: "add_duration", arguments: `{"time":"2026-03-28T12:00:00","zone":"Europe/Berlin","days":1}`, has: []string{`"2026-03-29T12:00:00+02:00"`}},
		{tool: "add_duration", arguments: `{"time":"2026-03-28T12:00:00","zone":"Europe/Berlin","hours":24}`, has: []string{`"2026-03-29T13:00:00+02:00"`}},
		{tool: "add_duration", arguments: `{"time":"2026-01-01","minutes":90,"seconds":-1}`, has: []string{`"2026-01-01T01:29:59Z"`}},
		{tool: "add_duration", arguments: `{"time":"2026-01-01","hours":8766000}`, has: []string{`"3026-`}}, // longer than a time.Duration
		{tool: "add_duration", arguments: `{"time":"2026-01-01","years":9000}`, fails: "outside 1 to 9999"},
		{tool: "add_duration", arguments: `{"time":"2026-01-01","days":9000000000000000000}`, fails: "days"},

		{tool: "time_difference", arguments: `{"from":"2026-03-02","to":"2026-03-04T01:01:01"}`, want: "2 days and 1h1m1s"},
		{tool: "time_difference", arguments: `{"from":"2026-12-24T23:00:00","to":"2026-12-24T22:59:00"}`, want: "-1m0s"},
		{tool: "time_difference", arguments: `{"from":"2026-12-24","to":"2026-12-22T12:00:00"}`, want: "-1 days and 12h0m0s"},
		{tool: "time_difference", arguments: `{"from":"2026-03-29","to":"2026-03-30","zone":"Europe/Berlin"}`, want: "23h0m0s"},
		{tool: "time_difference", arguments: `{"from":"0001-01-01","to":"9999-12-31"}`, has: []string{"3652058 days"}},

		{tool: "list_zones", arguments: `{"filter":"new york"}`, want: "America/New_York"},
		{tool: "list_zones", arguments: `{}`, has: []string{"Africa/Abidjan", "UTC"}},
		{tool: "list_zones", arguments: `{"filter":"Atlantis"}`, fails: "no time zone"},

		{tool: "calendar_info", arguments: `{"date":"2027-01-01"}`, want: "Friday, ISO week 53 of 2026, day 1 of an ordinary year, quarter 1"},
		{tool: "calendar_info", arguments: `{"date":"2028-12-31"}`, has: []string{"day 366 of a leap year, quarter 4"}},
		{tool: "calendar_info", arguments: `{"date":"2026-02-30"}`, fails: "no date or time"},
	})
}

func TestClockTellsTheTime(t *testing.T) {
	c := clock{func() time.Time { return time.Date(2026, 3, 2, 23, 30, 0, 0, time.UTC) }}
	now, err := c.current(t.Context(), zoneArgs{"Asia/Tokyo"})
	if err != nil || now.Time != "2026-03-03T08:30:00+09:00" || now.Weekday != "Tuesday" {
		t.Errorf("%+v, %v", now, err)
	}
	for text, want := range map[string]string{
		"now": "2026-03-03T08:30:00+09:00", "09:00": "2026-03-03T09:00:00+09:00",
	} {
		got, err := c.convert(t.Context(), convertTimeArgs{Time: text, From: "Asia/Tokyo", To: "Asia/Tokyo"})
		if err != nil || got.Time != want {
			t.Errorf("%s: got %s, %v, want %s", text, got.Time, err, want)
		}
	}
}

func TestEveryZoneListedExists(t *testing.T) {
	names := strings.Fields(zoneNames)
	if len(names) < 400 || !slices.IsSorted(names) {
		t.Errorf("%d zones, sorted: %v", len(names), slices.IsSorted(names))
	}
	for _, name := range names {
		if _, err := zone(name); err != nil {
			t.Error(err)
		}
	}
}
