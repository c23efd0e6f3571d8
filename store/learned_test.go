package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/tool"
)

var noon = time.UnixMilli(1767268800000)

func learn(t testing.TB, s *Store, uses ...LearnedUse) {
	t.Helper()
	for _, use := range uses {
		if err := s.Usage().PutLearned(context.Background(), use); err != nil {
			t.Fatal(err)
		}
	}
}

func learned(t testing.TB, s *Store) []LearnedUse {
	t.Helper()
	out, err := s.Usage().Learned(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func used(query, server, name string, count float64, at time.Time) LearnedUse {
	return LearnedUse{Query: query, Tool: tool.ID{Server: server, Name: name}, Count: count, At: at}
}

func TestWhatWasLearnedComesBack(t *testing.T) {
	odd := "naïve 漢字 'quoted' \"%_\x00"
	uses := []LearnedUse{
		used("a b", "files", "read", 0.5, noon),
		used("a b", "files", "write", 1, noon.Add(time.Millisecond)),
		used("a b", "files.old", "read", 0.25, noon),
		used(odd, "s", "t", 3, noon),
	}
	everywhere(t, func(t *testing.T, s *Store) {
		if got := learned(t, s); got != nil {
			t.Errorf("at first: %v", got)
		}
		learn(t, s, uses[3], uses[2], uses[1], uses[0])
		if got := learned(t, s); !reflect.DeepEqual(got, uses) {
			t.Errorf("got %v\nwant %v", got, uses)
		}
	})
}

func TestUsesAddUpAndFade(t *testing.T) {
	month := 30 * 24 * time.Hour
	for _, test := range []struct {
		name string
		uses []LearnedUse
		want float64
	}{
		{"once", []LearnedUse{used("q", "s", "t", 0.5, noon)}, 0.5},
		{"twice at once", []LearnedUse{used("q", "s", "t", 0.5, noon), used("q", "s", "t", 0.25, noon)}, 0.75},
		{"half a month later", []LearnedUse{used("q", "s", "t", 1, noon), used("q", "s", "t", 1, noon.Add(month/2))}, 1 + math.Sqrt(0.5)},
		{"a month later", []LearnedUse{used("q", "s", "t", 1, noon), used("q", "s", "t", 1, noon.Add(month))}, 1.5},
		{"a year later", []LearnedUse{used("q", "s", "t", 4, noon), used("q", "s", "t", 1, noon.Add(12*month))}, 1 + 4/4096.0},
		{"the clock was set back", []LearnedUse{used("q", "s", "t", 1, noon.Add(month)), used("q", "s", "t", 1, noon)}, 2},
		{"no more than the most", []LearnedUse{used("q", "s", "t", 3, noon), used("q", "s", "t", 3, noon)}, 4},
		{"not even at once", []LearnedUse{used("q", "s", "t", 1e300, noon)}, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Store) {
				learn(t, s, test.uses...)
				got := learned(t, s)
				if len(got) != 1 || math.Abs(got[0].Count-test.want) > 1e-12 || !got[0].At.Equal(test.uses[len(test.uses)-1].At) {
					t.Errorf("got %v, want a count of %v", got, test.want)
				}
			})
		})
	}
}

func TestWhatFadedIsForgotten(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		month := 30 * 24 * time.Hour
		learn(t, s, used("old", "s", "t", 0.25, noon), used("often", "s", "t", 4, noon))
		learn(t, s, used("new", "s", "t", 0.25, noon.Add(4*month)))
		if got := learned(t, s); len(got) != 3 {
			t.Errorf("after four months: %v", got)
		}
		learn(t, s, used("new", "s", "t", 0.25, noon.Add(4*month+time.Hour)))
		if got := learned(t, s); len(got) != 2 || got[0].Query != "new" || got[1].Query != "often" {
			t.Errorf("an hour later: %v", got)
		}
	})
}

func TestOfTooManyRowsTheWeakestIsForgotten(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		_, err := s.db.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO learned SELECT '', 'query ' || i, 's', 't', CASE i WHEN 77 THEN 0.5 ELSE 1 END, CAST($2 AS BIGINT) FROM n`,
			maxLearned, noon.UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		has := func(query string) bool {
			return slices.ContainsFunc(learned(t, s), func(u LearnedUse) bool { return u.Query == query })
		}
		learn(t, s, used("first", "s", "t", 0.25, noon))
		if n := len(learned(t, s)); n != maxLearned || has("query 77") || !has("first") {
			t.Errorf("%d rows, the weakest kept: %v, the new one kept: %v", n, has("query 77"), has("first"))
		}
		learn(t, s, used("second", "s", "t", 0.25, noon))
		if n := len(learned(t, s)); n != maxLearned || has("first") || !has("second") {
			t.Errorf("%d rows, the weakest kept: %v, the new one kept: %v", n, has("first"), has("second"))
		}
	})
}

func TestForgetLearned(t *testing.T) {
	all := []LearnedUse{
		used("Open the Letter", "files", "read", 1, noon),
		used("open the letter", "mail.box", "read", 1, noon),
		used("send 100% of it", "mail", "box.read", 1, noon),
		used("Ärger in İzmir", "mail", "write", 1, noon),
	}
	for _, test := range []struct {
		query, tool string
		left        []int
	}{
		{"", "", nil},
		{"LETTER", "", []int{2, 3}},
		{"letter", "files.read", []int{1, 2, 3}},
		{"Ärger IN İ", "", []int{0, 1, 2}},
		{"ärger", "", []int{0, 1, 2, 3}},
		{"", "mail.box.read", []int{0, 3}}, // two tools of that ID: both may be meant
		{"0% o", "", []int{0, 1, 3}},
		{"%", "", []int{0, 1, 3}},
		{"_", "", []int{0, 1, 2, 3}},
		{"", "files", []int{0, 1, 2, 3}},
		{"' OR 1=1 --", "", []int{0, 1, 2, 3}},
	} {
		t.Run(test.query+"|"+test.tool, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Store) {
				learn(t, s, all...)
				n, err := s.Usage().ForgetLearned(t.Context(), test.query, test.tool)
				if err != nil || n != len(all)-len(test.left) {
					t.Errorf("forgot %d, %v", n, err)
				}
				var want []LearnedUse
				for _, i := range test.left {
					want = append(want, all[i])
				}
				if got := learned(t, s); !reflect.DeepEqual(got, want) {
					t.Errorf("left %v, want %v", got, want)
				}
			})
		})
	}
}

// What a user has erased is not in any file, while another process has the
// database open.
func TestWhatIsForgottenLeavesTheDisk(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir), open(t, dir)
	const secret = "my very private question"
	for i := range 200 {
		learn(t, s, used(fmt.Sprintf("%s %d", secret, i), "s", "t", 1, noon))
	}
	onDisk := func() (n int) {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n += bytes.Count(content, []byte(secret))
		}
		return n
	}
	if onDisk() == 0 {
		t.Fatal("it was never on the disk: the test looks in the wrong place")
	}
	if _, err := s.Usage().ForgetLearned(t.Context(), secret, ""); err != nil {
		t.Fatal(err)
	}
	if n := onDisk(); n != 0 {
		t.Errorf("%d copies are left", n)
	}
	learn(t, other, used("next", "s", "t", 1, noon)) // forgetting harms nobody
	if got := learned(t, s); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestForgettingWhileSomebodyReadsSaysWhatStays(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	s, err := Open(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.db.Exec("PRAGMA busy_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	learn(t, s, used("q", "s", "t", 1, noon))
	reader := open(t, dir)
	rows, err := reader.db.Query(selectLearned)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatal("nothing to read")
	}
	if n, err := s.Usage().ForgetLearned(t.Context(), "", ""); n != 1 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	if strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("log: %s", &log)
	}
}

func TestUsesThatCannotBeStored(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		for _, use := range []LearnedUse{
			used("q", "s", "t", 0, noon), used("q", "s", "t", -1, noon), used("q", "s", "t", math.NaN(), noon),
			used(strings.Repeat("x", maxLearnedQuery+1), "s", "t", 1, noon),
		} {
			if err := s.Usage().PutLearned(t.Context(), use); err == nil || !strings.HasPrefix(err.Error(), "store: put learned use: ") {
				t.Errorf("%v: error %v", use, err)
			}
		}
		if got := learned(t, s); got != nil {
			t.Errorf("stored: %v", got)
		}
	})
}

func TestLearnedFailsWithItsContextAndItsStore(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		all := func(ctx context.Context) []error {
			_, read := s.Usage().Learned(ctx)
			_, forget := s.Usage().ForgetLearned(ctx, "", "")
			return []error{read, forget, s.Usage().PutLearned(ctx, used("q", "s", "t", 1, noon))}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range all(ctx) {
			if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "store: ") {
				t.Errorf("cancelled: %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, err := range all(t.Context()) {
			if err == nil || !strings.HasPrefix(err.Error(), "store: ") {
				t.Errorf("closed: %v", err)
			}
		}
	})
}

func BenchmarkPutLearned(b *testing.B) {
	s := open(b, b.TempDir())
	_, err := s.db.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO learned SELECT '', 'query ' || i, 's', 't', 1, $2 FROM n`, maxLearned, noon.UnixMilli())
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		learn(b, s, used(fmt.Sprint("new ", i), "s", "t", 0.5, noon))
	}
}
