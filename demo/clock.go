package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the zones work where the system has none

	"github.com/mark3labs/mcp-go/server"
)

// zoneNames are the places of the IANA time zone database, one a line, sorted.
//
//go:embed zones.txt
var zoneNames string

type zoneArgs struct {
	Zone string `json:"zone,omitempty" jsonschema:"Time zone such as Europe/Berlin or America/New_York (default UTC)"`
}

type convertTimeArgs struct {
	Time string `json:"time" jsonschema:"Date and time such as 2026-03-02T09:00:00; or only a time such as 09:00 for today; or now"`
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
	From string `json:"from" jsonschema:"First date or time such as 2026-03-02 or 2026-03-02T09:00:00; or now"`
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
	Short   string `json:"abbreviation" jsonschema:"Abbreviation in use at that time such as CET"`
	Weekday string `json:"weekday" jsonschema:"Day of the week"`
	Unix    int64  `json:"unix" jsonschema:"Seconds since 1970-01-01 UTC"`
}

type convertedTime struct {
	moment
	Source moment `json:"source" jsonschema:"The same moment in the time zone it was given in"`
}

type difference struct {
	Text    string  `json:"text" jsonschema:"The difference in words"`
	Seconds float64 `json:"seconds" jsonschema:"Seconds from the first to the second; negative if the second is earlier"`
	Days    int     `json:"days" jsonschema:"Midnights between the two; what a calendar counts as days"`
}

type zoneList struct {
	Zones []string `json:"zones" jsonschema:"Names of time zones"`
}

type calendarDay struct {
	Date        string `json:"date" jsonschema:"The date"`
	Weekday     string `json:"weekday" jsonschema:"Day of the week"`
	ISOWeek     int    `json:"iso_week" jsonschema:"ISO 8601 week number, 1 to 53"`
	ISOYear     int    `json:"iso_year" jsonschema:"Year that the ISO week belongs to"`
	DayOfYear   int    `json:"day_of_year" jsonschema:"1 to 366"`
	Quarter     int    `json:"quarter" jsonschema:"1 to 4"`
	DaysInMonth int    `json:"days_in_month" jsonschema:"28 to 31"`
	LeapYear    bool   `json:"leap_year" jsonschema:"Whether the year has 366 days"`
}

// clock knows the time; tests give it another.
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
	if name != "Local" { // that would be this machine's, whatever it is
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	if near := zonesWith(name); len(near) > 0 {
		return nil, fmt.Errorf("there is no time zone %q; did you mean %s?", name, near[0])
	}
	return nil, fmt.Errorf("there is no time zone %q; names look like Europe/Berlin, and list_zones finds them", name)
}

// zonesWith returns the zones whose name contains a text, spaces and case aside.
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

// parse reads a time given in a zone.
func (c clock) parse(text string, in *time.Location) (time.Time, error) {
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, "now") {
		return c.now().In(in), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04",
		"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, in); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04", "3:04 PM", "3:04PM", "3 PM", "3PM"} {
		if t, err := time.Parse(layout, strings.ToUpper(text)); err == nil {
			year, month, day := c.now().In(in).Date()
			return time.Date(year, month, day, t.Hour(), t.Minute(), t.Second(), 0, in), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no date or time; write it like 2026-03-02T09:00:00, 2026-03-02, 09:00 or now", text)
}

// sane refuses years that RFC 3339 cannot write.
func sane(t time.Time) error {
	if t.Year() < 1 || t.Year() > 9999 {
		return fmt.Errorf("the year %d is outside 1 to 9999", t.Year())
	}
	return nil
}

func at(t time.Time) moment {
	short, _ := t.Zone()
	return moment{t.Format(time.RFC3339), t.Location().String(), short, t.Weekday().String(), t.Unix()}
}

func (c clock) current(_ context.Context, in zoneArgs) (moment, error) {
	loc, err := zone(in.Zone)
	if err != nil {
		return moment{}, err
	}
	return at(c.now().In(loc)), nil
}

func (c clock) convert(_ context.Context, in convertTimeArgs) (convertedTime, error) {
	from, err := zone(in.From)
	if err != nil {
		return convertedTime{}, err
	}
	to, err := zone(in.To)
	if err != nil {
		return convertedTime{}, err
	}
	t, err := c.parse(in.Time, from)
	if err != nil {
		return convertedTime{}, err
	}
	if err := sane(t.In(to)); err != nil {
		return convertedTime{}, err
	}
	return convertedTime{at(t.In(to)), at(t)}, nil
}

func (c clock) add(_ context.Context, in addTimeArgs) (moment, error) {
	loc, err := zone(in.Zone)
	if err != nil {
		return moment{}, err
	}
	t, err := c.parse(in.Time, loc)
	if err != nil {
		return moment{}, err
	}
	for what, n := range map[string]int{"years": in.Years, "months": in.Months, "weeks": in.Weeks, "days": in.Days} {
		if n < -4_000_000 || n > 4_000_000 {
			return moment{}, fmt.Errorf("%d %s leave the calendar, which has the years 1 to 9999", n, what)
		}
	}
	const most = int(1e11) // seconds; 3,000 years, and far from overflow
	for what, n := range map[string]int{"hours": in.Hours, "minutes": in.Minutes, "seconds": in.Seconds} {
		if n < -most || n > most {
			return moment{}, fmt.Errorf("%d %s are too many", n, what)
		}
	}
	// Not AddDate for months: it makes 3 March of 31 January and a month.
	year, month, day := t.Date()
	first := time.Date(year+in.Years, month+time.Month(in.Months), 1, 0, 0, 0, 0, time.UTC)
	day = min(day, daysIn(first))
	hour, minute, second := t.Clock()
	t = time.Date(first.Year(), first.Month(), day+7*in.Weeks+in.Days, hour, minute, second, t.Nanosecond(), t.Location())
	// Seconds since 1970, because a Duration ends after 292 years.
	t = time.Unix(t.Unix()+int64(in.Hours)*3600+int64(in.Minutes)*60+int64(in.Seconds), int64(t.Nanosecond())).In(t.Location())
	if err := sane(t); err != nil {
		return moment{}, err
	}
	return at(t), nil
}

func daysIn(t time.Time) int { return time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day() }

func (c clock) difference(_ context.Context, in differenceArgs) (difference, error) {
	loc, err := zone(in.Zone)
	if err != nil {
		return difference{}, err
	}
	from, err := c.parse(in.From, loc)
	if err != nil {
		return difference{}, err
	}
	to, err := c.parse(in.To, loc)
	if err != nil {
		return difference{}, err
	}
	seconds := to.Unix() - from.Unix()
	days := int((midnight(to.In(loc)) - midnight(from.In(loc))) / 86400)
	return difference{duration(seconds), float64(seconds) + float64(to.Nanosecond()-from.Nanosecond())/1e9, days}, nil
}

// midnight numbers the days of the calendar, without its changes of clocks.
func midnight(t time.Time) int64 {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
}

func duration(seconds int64) string {
	if seconds == 0 {
		return "no time"
	}
	sign := ""
	if seconds < 0 {
		seconds, sign = -seconds, "minus "
	}
	var parts []string
	for _, unit := range []struct {
		name   string
		length int64
	}{{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		n := seconds / unit.length
		seconds %= unit.length
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit.name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit.name))
		}
	}
	return sign + strings.Join(parts, ", ")
}

func (c clock) zones(_ context.Context, in listZonesArgs) (zoneList, error) {
	found := zonesWith(in.Filter)
	if len(found) == 0 {
		return zoneList{}, errors.New("no time zone has that in its name; zones are named after a large city, such as Asia/Tokyo")
	}
	return zoneList{found}, nil
}

func (c clock) calendar(_ context.Context, in dateArgs) (calendarDay, error) {
	loc, err := zone(in.Zone)
	if err != nil {
		return calendarDay{}, err
	}
	t, err := c.parse(in.Date, loc)
	if err != nil {
		return calendarDay{}, err
	}
	isoYear, isoWeek := t.ISOWeek()
	return calendarDay{
		Date:        t.Format(time.DateOnly),
		Weekday:     t.Weekday().String(),
		ISOWeek:     isoWeek,
		ISOYear:     isoYear,
		DayOfYear:   t.YearDay(),
		Quarter:     (int(t.Month()) + 2) / 3,
		DaysInMonth: daysIn(t),
		LeapYear:    time.Date(t.Year(), 12, 31, 0, 0, 0, 0, time.UTC).YearDay() == 366,
	}, nil
}
