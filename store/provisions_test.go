package store

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/tool"
)

// never is a provision without an end, as it comes back.
// putProvisions makes set what an owner may call, whatever that was.
func putProvisions(s *Store, ctx context.Context, view, owner string, set []tool.Provisioned) error {
	return s.Usage().ChangeProvisions(ctx, view, owner, func([]tool.Provisioned) ([]tool.Provisioned, error) { return set, nil })
}

func never(owner, server, name string) tool.Provisioned {
	return tool.Provisioned{Owner: owner, ID: tool.ID{Server: server, Name: name}, Tokens: len(name)}
}

func provision(t testing.TB, s *Store, view, owner string, set ...tool.Provisioned) {
	t.Helper()
	if err := putProvisions(s, t.Context(), view, owner, set); err != nil {
		t.Fatal(err)
	}
}

func provisions(t testing.TB, s *Store, view string) []tool.Provisioned {
	t.Helper()
	got, err := s.Usage().Provisions(t.Context(), view)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantProvisions(t testing.TB, s *Store, view string, want ...tool.Provisioned) {
	t.Helper()
	if got := provisions(t, s, view); !slices.Equal(got, want) {
		t.Errorf("view %q has %v\nwant %v", view, got, want)
	}
}

func provisionRows(t testing.TB, s *Store) (n int) {
	t.Helper()
	if err := s.db.QueryRow(`SELECT count(*) FROM provisions`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAProvisionedSetComesBackAsItWasPut(t *testing.T) {
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	all := []tool.Provisioned{
		never("o", "s", "z"),
		never("o", "s", "a"),
		never("o", "s.a", "b"), // the same "server.name" as the next
		never("o", "s", "a.b"),
		never("o", "", ""),
		{Owner: "o", ID: tool.ID{Server: "s", Name: "z", Kind: tool.KindPrompt}, Until: soon, Tokens: 1 << 40},
		{Owner: "o", ID: tool.ID{Server: "s", Name: "file:///ü?a=b", Kind: tool.KindResource}},
		{Owner: "o", ID: tool.ID{Server: "s", Name: "file:///{x}", Kind: tool.KindTemplate}},
	}
	everywhere(t, func(t *testing.T, s *Store) {
		provision(t, s, "v", "o", all...)
		wantProvisions(t, s, "v", all...)
	})
}

func TestASetReplacesTheOneBefore(t *testing.T) {
	a, b, c := never("o", "s", "a"), never("o", "s", "b"), never("o", "s", "c")
	for _, test := range []struct {
		name       string
		put, leave []tool.Provisioned
	}{
		{"by another", []tool.Provisioned{c}, []tool.Provisioned{c}},
		{"by more", []tool.Provisioned{a, b, c}, []tool.Provisioned{a, b, c}},
		{"by another order", []tool.Provisioned{b, a}, []tool.Provisioned{b, a}},
		{"by none", nil, nil},
		{"with one twice", []tool.Provisioned{b, a, b}, []tool.Provisioned{b, a}},
		{"whatever its owner is said to be", []tool.Provisioned{never("x", "s", "a")}, []tool.Provisioned{a}},
	} {
		t.Run(test.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Store) {
				provision(t, s, "v", "o", a, b)
				provision(t, s, "v", "other", a)
				provision(t, s, "w", "o", b)
				provision(t, s, "v", "o", test.put...)
				wantProvisions(t, s, "v", append(slices.Clone(test.leave), never("other", "s", "a"))...)
				wantProvisions(t, s, "w", b)
			})
		})
	}
}

func TestOwnersComeInOrderHoweverTheyWerePut(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		for _, owner := range []string{"principal b", "anonymous", "principal a", "principal b"} {
			provision(t, s, "v", owner, never(owner, "s", "2"), never(owner, "s", "1"))
		}
		wantProvisions(t, s, "v",
			never("anonymous", "s", "2"), never("anonymous", "s", "1"),
			never("principal a", "s", "2"), never("principal a", "s", "1"),
			never("principal b", "s", "2"), never("principal b", "s", "1"))
	})
}

func TestProvisionsEnd(t *testing.T) {
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	everywhere(t, func(t *testing.T, s *Store) {
		provision(t, s, "v", "o",
			tool.Provisioned{ID: tool.ID{Server: "s", Name: "past"}, Until: past},
			tool.Provisioned{ID: tool.ID{Server: "s", Name: "before 1970"}, Until: time.UnixMilli(-1)},
			tool.Provisioned{ID: tool.ID{Server: "s", Name: "1970"}, Until: time.UnixMilli(0)},
			tool.Provisioned{ID: tool.ID{Server: "s", Name: "future"}, Until: future})
		left := tool.Provisioned{Owner: "o", ID: tool.ID{Server: "s", Name: "future"}, Until: future}
		wantProvisions(t, s, "v", left)
		if n := provisionRows(t, s); n != 1 {
			t.Errorf("%d rows are stored, want the one that has not ended", n)
		}

		// What ends while it is stored is not read, and goes with whatever is put next.
		if _, err := s.db.Exec(`UPDATE provisions SET until = $1`, past.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		wantProvisions(t, s, "v")
		provision(t, s, "w", "other", never("other", "s", "a"))
		if n := provisionRows(t, s); n != 1 {
			t.Errorf("%d rows are stored, want the one just put", n)
		}
	})
}

func TestProvisionsOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	want := []tool.Provisioned{never("o", "s.t", "b"), never("o", "s", "t.b")}
	s := open(t, dir)
	provision(t, s, "v", "o", want...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantProvisions(t, open(t, dir), "v", want...)
}

func TestTwoHandlesSeeEachOthersProvisions(t *testing.T) {
	processes(t, func(t *testing.T, open func() *Store) {
		one, two := open(), open()
		provision(t, one, "v", "o", never("o", "s", "a"))
		wantProvisions(t, two, "v", never("o", "s", "a"))
		provision(t, two, "v", "o", never("o", "s", "b"))
		provision(t, two, "v", "p", never("p", "s", "c"))
		wantProvisions(t, one, "v", never("o", "s", "b"), never("p", "s", "c"))
	})
}

func TestOfTooManyProvisionsTheSetsChangedLongestAgoGo(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		const of = 10 // tools of an owner
		_, err := s.db.Exec(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1)
			INSERT INTO provisions (view, owner, server, kind, name, until, tokens)
			SELECT 'v', CAST(100000 + i / $2 AS TEXT), 's', '', CAST(i % $2 AS TEXT), 0, 0 FROM n`, maxProvisions, of)
		if err != nil {
			t.Fatal(err)
		}
		provision(t, s, "v", "100000", never("", "s", "changed")) // the oldest is the newest now
		var set []tool.Provisioned                                // 11 more than there is room for
		for i := range 20 {
			set = append(set, never("", "s", fmt.Sprint(i)))
		}
		provision(t, s, "w", "new", set...)
		var oldest string // of those that were there before
		if err := s.db.QueryRow(`SELECT min(owner) FROM provisions WHERE view = 'v' AND owner <> '100000'`).Scan(&oldest); err != nil {
			t.Fatal(err)
		}
		if oldest != "100003" {
			t.Errorf("the oldest set is that of %s, want 100003", oldest)
		}
		var halves int // sets of which only a part is there
		if err := s.db.QueryRow(`SELECT count(*) FROM (SELECT owner FROM provisions WHERE view = 'v' GROUP BY owner HAVING count(*) < $1) AS part`, of).Scan(&halves); err != nil {
			t.Fatal(err)
		}
		if n := provisionRows(t, s); n > maxProvisions || n < maxProvisions-of || halves != 1 { // that of 100000 has one tool
			t.Errorf("%d rows, %d sets of fewer than %d; want close to %d rows, 1 set", n, halves, of, maxProvisions)
		}
		if n := len(provisions(t, s, "w")); n != len(set) {
			t.Errorf("%d of the %d just put are there", n, len(set))
		}
	})
}

func TestProvisionsThatAreTooManyOrTooLongAreErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		provision(t, s, "v", "o", never("o", "s", "a"))
		for name, put := range map[string]func() error{
			"tools": func() error {
				return putProvisions(s, t.Context(), "v", "o", make([]tool.Provisioned, maxOwnProvisions+1))
			},
			"owner": func() error {
				return putProvisions(s, t.Context(), "v", strings.Repeat("o", maxProvisionOwner+1), []tool.Provisioned{never("", "s", "a")})
			},
		} {
			if err := put(); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		wantProvisions(t, s, "v", never("o", "s", "a"))
	})
}

func TestProvisionsAndSavingsOfAClosedStoreAreErrors(t *testing.T) {
	s := open(t, t.TempDir())
	s.Close()
	for name, do := range map[string]func() error{
		"put provisions":  func() error { return putProvisions(s, t.Context(), "v", "o", nil) },
		"read provisions": func() error { _, err := s.Usage().Provisions(t.Context(), "v"); return err },
		"add savings":     func() error { return s.Usage().AddSavings(t.Context(), today(), nil) },
		"read savings":    func() error { _, err := s.Usage().Savings(t.Context(), time.Time{}); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A schema that lacks a table is no database of this program, though it says so.
func TestADatabaseWithoutTheTablesOfItsVersionIsMovedAside(t *testing.T) {
	for _, table := range []string{"provisions", "savings"} {
		t.Run(table, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			if _, err := s.db.Exec(`DROP TABLE ` + table); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			works(t, open(t, dir))
			if aside := movedAside(t, dir); len(aside) != 1 {
				t.Errorf("moved aside: %v", aside)
			}
		})
	}
}

// keepAccounts is what another process does with provisions and savings.
func keepAccounts(dir string) error {
	ctx, cancel := contextOfAProcess()
	defer cancel()
	s, err := Open(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	own := fmt.Sprint("process ", os.Getpid())
	for i := range rounds {
		set := []tool.Provisioned{never("", "s", fmt.Sprint(i)), never("", "s", "last")}
		for _, owner := range []string{own, "both"} {
			if err := patiently(func() error { return putProvisions(s, ctx, "v", owner, set) }); err != nil {
				return err
			}
		}
		if err := patiently(func() error {
			return s.Usage().AddSavings(ctx, today(), []Savings{{View: "v", Sessions: 1, Cached: 1 << 40}})
		}); err != nil {
			return err
		}
	}
	return s.Close()
}

func TestProcessesKeepAccountsInOneDirectory(t *testing.T) {
	dir := t.TempDir()
	var others []*exec.Cmd
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "TOOLFINCH_TEST_OTHER_ACCOUNTS="+dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		others = append(others, cmd)
	}
	var want []tool.Provisioned
	set := func(owner string) []tool.Provisioned {
		return []tool.Provisioned{never(owner, "s", fmt.Sprint(rounds-1)), never(owner, "s", "last")}
	}
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		want = append(want, set(fmt.Sprint("process ", cmd.Process.Pid))...)
	}
	slices.SortStableFunc(want, func(a, b tool.Provisioned) int { return strings.Compare(a.Owner, b.Owner) })
	s := open(t, dir)
	wantProvisions(t, s, "v", append(set("both"), want...)...)
	n := len(others) * rounds
	if got, want := savings(t, s, time.Time{}), []Savings{{Day: today(), View: "v", Sessions: int64(n), Cached: int64(n) << 40}}; !reflect.DeepEqual(got, want) {
		t.Errorf("savings %+v, want %+v", got, want)
	}
}

func BenchmarkPutProvisions(b *testing.B) {
	s := open(b, b.TempDir())
	_, err := s.db.Exec(`WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1)
		INSERT INTO provisions (view, owner, server, kind, name, until) SELECT 'v', i / 10, 's', '', i % 10, 0 FROM n`, maxProvisions)
	if err != nil {
		b.Fatal(err)
	}
	set := make([]tool.Provisioned, 20)
	for i := range set {
		set[i] = never("", "s", fmt.Sprint(i))
	}
	for b.Loop() {
		if err := putProvisions(s, b.Context(), "v", "o", set); err != nil {
			b.Fatal(err)
		}
	}
}
