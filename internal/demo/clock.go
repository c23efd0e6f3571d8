package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for systems without a time zone database

	"github.com/mark3labs/mcp-go/server"
)

// zoneNames lists the places of the IANA time zone database, sorted, one per line.
//
//go:embed zones.txt
var zoneNames string

type zoneArgs struct {
	Zone string `json:"zone,omitempty" jsonschema:"Time zone such as Europe/Berlin or America/New_York (default UTC)"`
}

type convertTimeArgs struct {
	Time string `json:"time" jsonschema:"Date and time such as 2026-03-02T09:00:00; or only 09:00 for today; or now"`
	From string `json:"from,omitempty" jsonschema:"Time zone the time is given in (default UTC); it does not count if the time has an offset of its own"`
	To   string `json:"to" jsonschema:"Time zone to convert to"`
}

type addTimeArgs struct {
	zoneArgs
	Time    string `json:"time" jsonschema:"Date and time to start from such as 2026-03-02T09:00:00 or 2026-03-02; or now"`
	Years   int    `json:"years,omitempty" jsonschema:"Years to add; negative to subtract, as all of these"`
	Months  int    `json:"months,omitempty" jsonschema:"Months to add; a day that the month lacks moves to its last day"`
	Weeks   int    `json:"weeks,omitempty" jsonschema:"Weeks to add"`
	Days    int    `json:"days,omitempty" jsonschema:"Days to add; the time of day stays"`
	Hours   int    `json:"hours,omitempty" jsonschema:"Hours to add"`
	Minutes int    `json:"minutes,omitempty" jsonschema:"Minutes to add"`
	Seconds int    `json:"seconds,omitempty" jsonschema:"Seconds to add"`
}

type differenceArgs struct {
	zoneArgs
	From string `json:"from" jsonschema:"First date or time such as 2026-03-02 or 2026-03-02T09:00:00; or only 09:00 for today; or now"`
	To   string `json:"to" jsonschema:"Second date or time"`
}

type listZonesArgs struct {
	Filter string `json:"filter,omitempty" jsonschema:"Part of the name such as Berlin or Asia; all if left out"`
}

type dateArgs struct {
	zoneArgs
	Date string `json:"date" jsonschema:"Date such as 2026-03-02; or now"`
}

type moment struct {
	Time    string `json:"time" jsonschema:"Date and time with offset (RFC 3339)"`
	Zone    string `json:"zone" jsonschema:"Time zone"`
	Weekday string `json:"weekday" jsonschema:"Day of the week"`
}

// clock tells the time. Tests replace now.
type clock struct{ now func() time.Time }

func newClock(string) (*server.MCPServer, func() error, error) {
	c := clock{time.Now}
	s := newServer("clock", "Time zones are IANA names such as Asia/Tokyo; list_zones finds them.")
	add(s, "current_time", "What time is it", "Tells the current date and time in a city's or country's time zone.", draws, c.current)
	add(s, "convert_time", "Convert between time zones", "Converts a date and time from one time zone to another.", reads, c.convert)
	add(s, "add_duration", "Add to a date", "Adds years, months, weeks, days, hours, minutes or seconds to a date and time, or subtracts them.", reads, c.add)
	add(s, "time_difference", "Time between two dates", "Tells how much time lies between two dates or times, in days and to the second.", reads, c.difference)
	add(s, "list_zones", "List time zones", "Lists the names of time zones, all or those that contain a text such as a city.", reads, c.zones)
	add(s, "calendar_info", "About a date", "Tells weekday, ISO week number, day of the year, quarter and leap year of a date.", reads, c.calendar)
	return s, nothingToClose, nil
}

func zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if name != "Local" { // "Local" would be the zone of this machine
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	if near := zonesWith(name); len(near) > 0 {
		return nil, fmt.Errorf("there is no time zone %q; did you mean %s?", name, near[0])
	}
	return nil, fmt.Errorf("there is no time zone %q; names look like Europe/Berlin, and list_zones finds them", name)
}

// zonesWith returns the zones whose name contains text. It ignores case; a space matches an underscore.
func zonesWith(text string) []string {
	text = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(text), " ", "_"))
	out := []string{}
	for name := range strings.Lines(zoneNames) {
		if name = strings.TrimSpace(name); strings.Contains(strings.ToLower(name), text) {
			out = append(out, name)
		}
	}
	return out
}

// read parses a time in a zone.
func (c clock) read(text, in string) (time.Time, error) {
	loc, err := zone(in)
	if err != nil {
		return time.Time{}, err
	}
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, "now") {
		return c.now().In(loc), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04",
		"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			return t, nil
		}
	}
	if t, err := time.Parse("15:04", text); err == nil {
		year, month, day := c.now().In(loc).Date()
		return time.Date(year, month, day, t.Hour(), t.Minute(), 0, 0, loc), nil
	}
	return time.Time{}, fmt.Errorf("%q is no date or time; write it like 2026-03-02T09:00:00, 2026-03-02, 09:00 or now", text)
}

// at describes a time. In RFC 3339, years have four digits.
func at(t time.Time) (moment, error) {
	if t.Year() < 1 || t.Year() > 9999 {
		return moment{}, fmt.Errorf("the year %d is outside 1 to 9999", t.Year())
	}
	return moment{t.Format(time.RFC3339), t.Location().String(), t.Weekday().String()}, nil
}

func (c clock) current(_ context.Context, in zoneArgs) (moment, error) {
	t, err := c.read("now", in.Zone)
	if err != nil {
		return moment{}, err
	}
	return at(t)
}

func (c clock) convert(_ context.Context, in convertTimeArgs) (moment, error) {
	to, err := zone(in.To)
	if err != nil {
		return moment{}, err
	}
	t, err := c.read(in.Time, in.From)
	if err != nil {
		return moment{}, err
	}
	return at(t.In(to))
}

func (c clock) add(_ context.Context, in addTimeArgs) (moment, error) {
	t, err := c.read(in.Time, in.Zone)
	if err != nil {
		return moment{}, err
	}
	for _, n := range []int{in.Years, in.Months, in.Weeks, in.Days, in.Hours, in.Minutes, in.Seconds} {
		if n < -1e10 || n > 1e10 {
			return moment{}, fmt.Errorf("%d is too large a number of years, months, weeks, days, hours, minutes or seconds", n)
		}
	}
	// AddDate is not used, because for it 31 January plus a month is 3 March.
	year, month, day := t.Date()
	first := time.Date(year+in.Years, month+time.Month(in.Months), 1, 0, 0, 0, 0, time.UTC)
	day = min(day, first.AddDate(0, 1, -1).Day())
	hour, minute, second := t.Clock()
	t = time.Date(first.Year(), first.Month(), day+7*in.Weeks+in.Days, hour, minute, second, 0, t.Location())
	// The sum is in seconds since 1970, because a Duration is at most 292 years.
	t = time.Unix(t.Unix()+int64(in.Hours)*3600+int64(in.Minutes)*60+int64(in.Seconds), 0).In(t.Location())
	return at(t)
}

func (c clock) difference(_ context.Context, in differenceArgs) (string, error) {
	from, err := c.read(in.From, in.Zone)
	if err != nil {
		return "", err
	}
	to, err := c.read(in.To, in.Zone)
	if err != nil {
		return "", err
	}
	seconds := to.Unix() - from.Unix()
	text := (time.Duration(seconds%86400) * time.Second).String()
	if days := seconds / 86400; days != 0 {
		text = fmt.Sprintf("%d days and %s", days, strings.TrimPrefix(text, "-"))
	}
	return text, nil
}

func (c clock) zones(_ context.Context, in listZonesArgs) (string, error) {
	found := zonesWith(in.Filter)
	if len(found) == 0 {
		return "", errors.New("no time zone has that in its name; zones are named after a large city, such as Asia/Tokyo")
	}
	return strings.Join(found, "\n"), nil
}

func (c clock) calendar(_ context.Context, in dateArgs) (string, error) {
	t, err := c.read(in.Date, in.Zone)
	if err != nil {
		return "", err
	}
	isoYear, isoWeek := t.ISOWeek()
	year := "an ordinary year"
	if time.Date(t.Year(), 12, 31, 0, 0, 0, 0, time.UTC).YearDay() == 366 {
		year = "a leap year"
	}
	return fmt.Sprintf("%s, ISO week %d of %d, day %d of %s, quarter %d",
		t.Weekday(), isoWeek, isoYear, t.YearDay(), year, (int(t.Month())+2)/3), nil
}
