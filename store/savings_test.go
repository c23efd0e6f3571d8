package store

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
)

func today() string { return time.Now().UTC().Format(time.DateOnly) }

func contextOfAProcess() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), await.Bound)
}

func save(t testing.TB, s *Store, day string, all ...Savings) {
	t.Helper()
	if err := s.Usage().AddSavings(t.Context(), day, all); err != nil {
		t.Fatal(err)
	}
}

func savings(t testing.TB, s *Store, since time.Time) []Savings {
	t.Helper()
	got, err := s.Usage().Savings(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSavingsAddUpByDayAndView(t *testing.T) {
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
	one := Savings{View: "v"}
	for i, n := range one.counts() {
		*n = int64(i) + 1
	}
	one.Cached = 3 << 40
	other := Savings{View: "w", Sessions: 1}
	everywhere(t, func(t *testing.T, s *Store) {
		save(t, s, day(2), one)
		save(t, s, day(1), other, one)
		save(t, s, day(1), one, Savings{View: "v", Answers: 90})
		sum := one.Plus(one)
		sum.Day = day(1)
		sum.Answers += 90
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
		if err := s.Usage().ResetSavings(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := savings(t, s, time.Time{}); len(got) > 0 {
			t.Errorf("after the reset there are %+v", got)
		}
	})
}

func TestSavingsAreByTheDayInUTC(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		save(t, s, "2126-11-20", Savings{})
		save(t, s, "2126-11-21", Savings{})
		east := time.FixedZone("east", 2*60*60)
		if got := savings(t, s, time.Date(2126, 11, 22, 1, 0, 0, 0, east)); len(got) != 1 || got[0].Day != "2126-11-21" {
			t.Errorf("since 1 a.m. of the 22nd, two hours east: %+v", got)
		}
	})
}

func TestOldSavingsAreDropped(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		for _, ago := range []int{savingsDays + 1, savingsDays - 2, 0} {
			save(t, s, time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly), Savings{Sessions: int64(ago)})
		}
		got := savings(t, s, time.Time{})
		if len(got) != 2 || got[0].Sessions != 0 || got[1].Sessions != savingsDays-2 {
			t.Errorf("got %+v, want today and what is younger than %d days", got, savingsDays)
		}
	})
}

func TestSavingsAreAllAddedOrNone(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		good := Savings{Sessions: 1, Cached: math.MaxInt64}
		save(t, s, today(), good)
		if err := s.Usage().AddSavings(t.Context(), today(), []Savings{{View: "v", Sessions: 1}, {Cached: 1}}); err == nil {
			t.Error("a sum that does not fit: no error")
		}
		for _, day := range []string{"", "21 November", "2026-13-01"} {
			if err := s.Usage().AddSavings(t.Context(), day, []Savings{good}); err == nil {
				t.Errorf("day %q: no error", day)
			}
		}
		good.Day = today()
		if got := savings(t, s, time.Time{}); !reflect.DeepEqual(got, []Savings{good}) {
			t.Errorf("got %+v, want %+v", got, good)
		}
	})
}

// Savings of a database that knew no steps are dropped, and new ones take their place.
func TestSavingsWithoutStepsAreDropped(t *testing.T) {
	dir := t.TempDir()
	names, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	const without = 12
	var old strings.Builder
	for _, name := range names[:without] {
		statements, err := migrations.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		old.Write(statements)
	}
	fmt.Fprintf(&old, `INSERT INTO savings VALUES ('2126-11-20', 'v', 1, 2, 3, 4, 5); PRAGMA user_version = %d`, without)
	execute(t, filepath.Join(dir, fileName), old.String())
	s := open(t, dir)
	if got := savings(t, s, time.Time{}); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
	save(t, s, today(), Savings{View: "v", Sessions: 1, Steps: 2})
	if got := savings(t, s, time.Time{}); len(got) != 1 || got[0].Steps != 2 {
		t.Errorf("got %+v", got)
	}
}
