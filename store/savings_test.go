package store

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"
)

func today() string { return time.Now().UTC().Format(time.DateOnly) }

func contextOfAProcess() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

func save(t testing.TB, s *Store, day string, all ...Savings) {
	t.Helper()
	if err := s.AddSavings(t.Context(), day, all); err != nil {
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

func TestSavingsAddUpByDayAndView(t *testing.T) {
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
	one := Savings{View: "v", Sessions: 1, Retrievals: 2, Full: 3 << 40, Listed: 4, Answers: 5}
	other := Savings{View: "w", Sessions: 1}
	inBoth(t, func(t *testing.T, s *Store) {
		save(t, s, day(2), one)
		save(t, s, day(1), other, one)
		save(t, s, day(1), one, Savings{View: "v", Answers: 90})
		sum := Savings{Day: day(1), View: "v", Sessions: 2, Retrievals: 4, Full: 6 << 40, Listed: 8, Answers: 100}
		before, beside := one, other
		before.Day, beside.Day = day(2), day(1)
		for _, test := range []struct {
			since time.Time
			want  []Savings
		}{
			{time.Time{}, []Savings{sum, beside, before}},
			{time.Now().AddDate(0, 0, -1), []Savings{sum, beside}},
			{time.Now().AddDate(0, 0, 2), nil},
		} {
			if got := savings(t, s, test.since); !reflect.DeepEqual(got, test.want) {
				t.Errorf("since %s: %+v\nwant %+v", test.since, got, test.want)
			}
		}
		if err := s.ResetSavings(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := savings(t, s, time.Time{}); len(got) > 0 {
			t.Errorf("after the reset there are %+v", got)
		}
	})
}

func TestSavingsAreByTheDayInUTC(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, "2126-11-20", Savings{})
	save(t, s, "2126-11-21", Savings{})
	east := time.FixedZone("east", 2*60*60)
	if got := savings(t, s, time.Date(2126, 11, 22, 1, 0, 0, 0, east)); len(got) != 1 || got[0].Day != "2126-11-21" {
		t.Errorf("since 1 a.m. of the 22nd, two hours east: %+v", got)
	}
}

func TestOldSavingsAreDropped(t *testing.T) {
	inBoth(t, func(t *testing.T, s *Store) {
		for _, ago := range []int{savingsDays + 1, savingsDays - 2, 0} {
			save(t, s, time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly), Savings{Sessions: ago})
		}
		got := savings(t, s, time.Time{})
		if len(got) != 2 || got[0].Sessions != 0 || got[1].Sessions != savingsDays-2 {
			t.Errorf("got %+v, want today and what is younger than %d days", got, savingsDays)
		}
	})
}

func TestSavingsAreAllAddedOrNone(t *testing.T) {
	s := open(t, t.TempDir())
	good := Savings{Sessions: 1, Full: math.MaxInt64}
	save(t, s, today(), good)
	if err := s.AddSavings(t.Context(), today(), []Savings{{View: "v", Sessions: 1}, {Full: 1}}); err == nil {
		t.Error("a sum that does not fit: no error")
	}
	for _, day := range []string{"", "21 November", "2026-13-01"} {
		if err := s.AddSavings(t.Context(), day, []Savings{good}); err == nil {
			t.Errorf("day %q: no error", day)
		}
	}
	good.Day = today()
	if got := savings(t, s, time.Time{}); !reflect.DeepEqual(got, []Savings{good}) {
		t.Errorf("got %+v, want %+v", got, good)
	}
}

// Savings of a database that told clients apart are added up by view.
func TestSavingsOfClientsAreAddedUp(t *testing.T) {
	s := open(t, t.TempDir())
	_, err := s.db.Exec(`DROP TABLE savings`)
	for _, name := range []string{"migrations/0009_savings.sql", "", "migrations/0011_savings_by_view.sql"} {
		statements := []byte(`INSERT INTO savings VALUES ('2126-11-20', 'v', 'a', 1, 2, 3, 4, 5), ('2126-11-20', 'v', 'b', 1, 2, 3, 4, 5)`)
		if name != "" && err == nil {
			statements, err = migrations.ReadFile(name)
		}
		if err == nil {
			_, err = s.db.Exec(string(statements))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []Savings{{Day: "2126-11-20", View: "v", Sessions: 2, Retrievals: 4, Full: 6, Listed: 8, Answers: 10}}
	if got := savings(t, s, time.Time{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
