package store

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func today() string { return time.Now().UTC().Format(time.DateOnly) }

func contextOfAProcess() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

func save(t testing.TB, s *Store, all ...Savings) {
	t.Helper()
	if err := s.AddSavings(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

func savings(t testing.TB, s *Store, since time.Time) []Savings {
	t.Helper()
	got, err := s.Savings(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSavingsAddUpByDayViewAndClient(t *testing.T) {
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
	one := Savings{Day: day(1), View: "v", Client: "agent 1", Sessions: 1, Retrievals: 2, Full: 3 << 40, Listed: 4, Answers: 5}
	with := func(edit func(*Savings)) Savings { other := one; edit(&other); return other }
	otherDay := with(func(s *Savings) { s.Day = day(2) })
	otherView := with(func(s *Savings) { s.View = "w" })
	otherClient := with(func(s *Savings) { s.Client = "agent 2" })
	nobody := with(func(s *Savings) { s.Client = "" })
	inBoth(t, func(t *testing.T, s *Store) {
		save(t, s, otherDay, otherClient, one)
		save(t, s, otherView, one, nobody)
		save(t, s, with(func(s *Savings) { *s = Savings{Day: one.Day, View: one.View, Client: one.Client, Answers: 90} }))
		sum := Savings{Day: one.Day, View: "v", Client: "agent 1", Sessions: 2, Retrievals: 4, Full: 6 << 40, Listed: 8, Answers: 100}
		for _, test := range []struct {
			since time.Time
			want  []Savings
		}{
			{time.Time{}, []Savings{nobody, sum, otherClient, otherView, otherDay}},
			{time.Now().AddDate(0, 0, -1), []Savings{nobody, sum, otherClient, otherView}},
			{time.Now().AddDate(0, 0, 2), nil},
		} {
			if got := savings(t, s, test.since); !reflect.DeepEqual(got, test.want) {
				t.Errorf("since %s: %+v\nwant %+v", test.since, got, test.want)
			}
		}
	})
}

// Whoever asks in another time zone means the day it is in UTC.
func TestSavingsAreByTheDayInUTC(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, Savings{Day: "2126-11-20"}, Savings{Day: "2126-11-21"})
	east := time.FixedZone("east", 14*60*60)
	if got := savings(t, s, time.Date(2126, 11, 22, 1, 0, 0, 0, east)); len(got) != 1 || got[0].Day != "2126-11-21" {
		t.Errorf("got %+v, want the 21st alone", got)
	}
}

func TestOldSavingsAreDropped(t *testing.T) {
	inBoth(t, func(t *testing.T, s *Store) {
		for _, ago := range []int{savingsDays + 1, savingsDays - 2, 0} {
			save(t, s, Savings{Day: time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly), Sessions: ago})
		}
		got := savings(t, s, time.Time{})
		if len(got) != 2 || got[0].Sessions != 0 || got[1].Sessions != savingsDays-2 {
			t.Errorf("got %+v, want today and what is younger than %d days", got, savingsDays)
		}
	})
}

func TestClientsCannotFillTheStoreWithSavings(t *testing.T) {
	s := open(t, t.TempDir())
	_, err := s.db.Exec(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
		INSERT INTO savings SELECT ?2, 'v', printf('agent %04d', i), 1, 0, 0, 0, 0 FROM n`, maxSavingsRows-1, today())
	if err != nil {
		t.Fatal(err)
	}
	from := func(day, view, client string) Savings {
		return Savings{Day: day, View: view, Client: client, Sessions: 1}
	}
	save(t, s, from(today(), "v", "agent 0999")) // the last that has room
	save(t, s,
		from(today(), "v", "agent 1000"), from(today(), "v", "agent 1001"), from(today(), "w", "agent 0000"),
		from(today(), "v", "agent 0000"), // it has a row
		from("2126-11-21", "v", "agent 1000"))
	got := map[string]int{}
	for _, one := range savings(t, s, time.Now().AddDate(0, 0, -1)) {
		got[one.Day+" "+one.View+" "+one.Client] = one.Sessions
	}
	for key, want := range map[string]int{
		today() + " v ": 2, today() + " w ": 1,
		today() + " v agent 0000": 2, today() + " v agent 0999": 1, today() + " v agent 1000": 0, today() + " w agent 0000": 0,
		"2126-11-21 v agent 1000": 1, // another day
	} {
		if got[key] != want {
			t.Errorf("%s: %d sessions, want %d", key, got[key], want)
		}
	}
	if len(got) != maxSavingsRows+3 {
		t.Errorf("%d rows", len(got))
	}
}

func TestNamesOfClientsAreClipped(t *testing.T) {
	long := strings.Repeat("x", maxSavingsClient-1)
	for given, want := range map[string]string{
		"agent 1.0":              "agent 1.0",
		long + "yz":              long + "y",
		long + "ü":               long, // not half a letter
		"bad \xff byte":          "bad \uFFFD byte",
		strings.Repeat("ü", 500): strings.Repeat("ü", maxSavingsClient/2),
	} {
		s := open(t, t.TempDir())
		save(t, s, Savings{Day: today(), Client: given, Sessions: 1}, Savings{Day: today(), Client: given, Sessions: 1})
		got := savings(t, s, time.Time{})
		if len(got) != 1 || got[0].Client != want || got[0].Sessions != 2 {
			t.Errorf("%.20q is kept as %+v, want %.20q", given, got, want)
		}
	}
}

func TestSavingsAreAllAddedOrNone(t *testing.T) {
	s := open(t, t.TempDir())
	good := Savings{Day: today(), Sessions: 1, Full: math.MaxInt64}
	save(t, s, good)
	for name, all := range map[string][]Savings{
		"no day":         {{Day: today(), Client: "c"}, {Day: "yesterday"}},
		"empty day":      {{Day: today(), Client: "c"}, {}},
		"more than fits": {{Day: today(), Client: "c"}, {Day: today(), Full: 1}},
	} {
		if err := s.AddSavings(t.Context(), all); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := savings(t, s, time.Time{}); !reflect.DeepEqual(got, []Savings{good}) {
		t.Errorf("got %+v, want what was there before", got)
	}
}
