package storetest

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/store"
	"toolfinch/tool"
)

// noon is a time without parts of a millisecond.
var noon = time.UnixMilli(1767268800000)

// longestOwner is how many bytes the owner of a provisioned set may have.
const longestOwner = 2048

// usage are the promises about what clients did: what was learned, called, provisioned and saved.
var usage = []promise{
	{"clients are remembered within bounds", func(t *testing.T, p place) {
		s := p.open(t)
		const most, longest = 1000, 256
		remember := func(client string, relists tool.Relists) {
			t.Helper()
			Must(t, s.Usage().PutClient(t.Context(), client, relists))
		}
		remember("agent 1", tool.RelistsNever)
		remember("agent 2", tool.RelistsNever)
		remember("agent 1", tool.RelistsMostly)
		if got, err := s.Usage().Clients(t.Context()); err != nil || !reflect.DeepEqual(got, map[string]tool.Relists{"agent 1": tool.RelistsMostly, "agent 2": tool.RelistsNever}) {
			t.Errorf("%v, %v", got, err)
		}
		if err := s.Usage().PutClient(t.Context(), strings.Repeat("x", longest+1), tool.RelistsAlways); err == nil {
			t.Error("a name of any length is kept")
		}
		p.sql(t, `%s INSERT INTO clients SELECT 'flood ' || i, 1, i FROM n`, count(2*most))
		remember("agent 3", tool.RelistsAlways)
		got, err := s.Usage().Clients(t.Context())
		if _, kept := got["agent 2"]; err != nil || len(got) != most || !kept || got["agent 3"] != tool.RelistsAlways {
			t.Errorf("%d clients, %v, want the latest %d", len(got), err, most)
		}
	}},
	{"what a client called last is kept for a week, within bounds", func(t *testing.T, p place) {
		s := p.open(t)
		const most, longest = 1000, 2048
		put := func(view, principal, client string, called ...tool.Called) {
			t.Helper()
			Must(t, s.Usage().PutCalled(t.Context(), view, tool.Caller{Principal: principal, Client: client}, called))
		}
		one, two, three := tool.Called{Name: "a", Sessions: 1}, tool.Called{Name: "b", Sessions: 3}, tool.Called{Name: "c", Sessions: 7}
		put("", "", "agent 1", one, two)
		put("", "", "agent 1", three, one)
		put("", "ann", "agent 1", two)
		put("view", "", "agent 1", two)
		check := func(want map[tool.Caller][]tool.Called) {
			t.Helper()
			if got, err := s.Usage().Called(t.Context(), ""); err != nil || !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		}
		check(map[tool.Caller][]tool.Called{{Client: "agent 1"}: {three, one}, {Principal: "ann", Client: "agent 1"}: {two}})
		p.sql(t, `UPDATE called SET at = %d WHERE principal = 'ann'`, time.Now().AddDate(0, 0, -8).UnixMilli())
		check(map[tool.Caller][]tool.Called{{Client: "agent 1"}: {three, one}})
		if err := s.Usage().PutCalled(t.Context(), "", tool.Caller{Principal: strings.Repeat("x", longest), Client: "y"}, nil); err == nil {
			t.Error("a caller of any length is kept")
		}
		p.sql(t, `%s INSERT INTO called SELECT 'flood', '', CAST(i AS TEXT), '[]', (SELECT max(at) FROM called) FROM n`, count(2*most))
		put("", "", "agent 2", three)
		if rows := p.sql(t, `SELECT count(*) FROM called`); rows != most {
			t.Errorf("%d rows are kept, want %d", rows, most)
		}
		if got, err := s.Usage().Called(t.Context(), ""); err != nil || !slices.Equal(got[tool.Caller{Client: "agent 2"}], []tool.Called{three}) {
			t.Errorf("after many others: %v, %v", got, err)
		}
	}},
	{"what was learned comes back", func(t *testing.T, p place) {
		s := p.open(t)
		uses := []store.LearnedUse{
			used("a b", "files", "read", 0.5, noon), used("a b", "files", "write", 1, noon.Add(time.Millisecond)),
			used("a b", "files.old", "read", 0.25, noon), used("naïve 漢字 'quoted' \"%_\x00", "s", "t", 3, noon),
		}
		wantLearned(t, s)
		learn(t, s, uses[3], uses[2], uses[1], uses[0])
		wantLearned(t, s, uses...)
	}},
	{"uses add up and fade", func(t *testing.T, p place) {
		s := p.open(t)
		month := 30 * 24 * time.Hour
		for name, test := range map[string]struct {
			uses []store.LearnedUse
			want float64
		}{
			"once":                   {[]store.LearnedUse{used("q", "s", "t", 0.5, noon)}, 0.5},
			"twice at once":          {[]store.LearnedUse{used("q", "s", "t", 0.5, noon), used("q", "s", "t", 0.25, noon)}, 0.75},
			"half a month later":     {[]store.LearnedUse{used("q", "s", "t", 1, noon), used("q", "s", "t", 1, noon.Add(month/2))}, 1 + math.Sqrt(0.5)},
			"a year later":           {[]store.LearnedUse{used("q", "s", "t", 4, noon), used("q", "s", "t", 1, noon.Add(12*month))}, 1 + 4/4096.0},
			"the clock was set back": {[]store.LearnedUse{used("q", "s", "t", 1, noon.Add(month)), used("q", "s", "t", 1, noon)}, 2},
			"no more than the most":  {[]store.LearnedUse{used("q", "s", "t", 3, noon), used("q", "s", "t", 3, noon)}, 4},
			"not even at once":       {[]store.LearnedUse{used("q", "s", "t", 1e300, noon)}, 4},
		} {
			learn(t, s, test.uses...)
			got := learned(t, s)
			if len(got) != 1 || math.Abs(got[0].Count-test.want) > 1e-12 || !got[0].At.Equal(test.uses[len(test.uses)-1].At) {
				t.Errorf("%s: got %v, want a count of %v", name, got, test.want)
			}
			_, err := s.Usage().ForgetLearned(t.Context(), "", "")
			Must(t, err)
		}
	}},
	{"what has faded is forgotten", func(t *testing.T, p place) {
		s := p.open(t)
		later := noon.Add(4 * 30 * 24 * time.Hour)
		learn(t, s, used("old", "s", "t", 0.25, noon), used("often", "s", "t", 4, noon))
		learn(t, s, used("new", "s", "t", 0.25, later))
		if got := learned(t, s); len(got) != 3 {
			t.Errorf("after four months: %v", got)
		}
		learn(t, s, used("new", "s", "t", 0.25, later.Add(time.Hour)))
		if got := learned(t, s); len(got) != 2 || got[0].Query != "new" || got[1].Query != "often" {
			t.Errorf("an hour later: %v", got)
		}
	}},
	{"of too many uses the weakest is forgotten", func(t *testing.T, p place) {
		s := p.open(t)
		const most = 5000
		p.sql(t, count(most)+` INSERT INTO learned SELECT '', 'query ' || i, 's', 't', CASE i WHEN 77 THEN 0.5 ELSE 1 END, CAST(%d AS BIGINT) FROM n`, noon.UnixMilli())
		for _, step := range []struct{ put, gone string }{{"first", "query 77"}, {"second", "first"}} {
			learn(t, s, used(step.put, "s", "t", 0.25, noon))
			all := learned(t, s)
			has := func(query string) bool {
				return slices.ContainsFunc(all, func(u store.LearnedUse) bool { return u.Query == query })
			}
			if len(all) != most || has(step.gone) || !has(step.put) {
				t.Errorf("%d rows, %s is kept: %v, %s is kept: %v", len(all), step.gone, has(step.gone), step.put, has(step.put))
			}
		}
	}},
	{"what was learned is forgotten by query and tool", func(t *testing.T, p place) {
		s := p.open(t)
		all := []store.LearnedUse{
			used("Open the Letter", "files", "read", 1, noon), used("open the letter", "mail.box", "read", 1, noon),
			used("send 100% of it", "mail", "box.read", 1, noon), used("Ärger in İzmir", "mail", "write", 1, noon),
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
			{"_", "", []int{0, 1, 2, 3}},
			{"", "files", []int{0, 1, 2, 3}},
			{"' OR 1=1 --", "", []int{0, 1, 2, 3}},
		} {
			learn(t, s, all...)
			if n, err := s.Usage().ForgetLearned(t.Context(), test.query, test.tool); err != nil || n != len(all)-len(test.left) {
				t.Errorf("%q of %q: forgot %d, %v", test.query, test.tool, n, err)
			}
			var want []store.LearnedUse
			for _, i := range test.left {
				want = append(want, all[i])
			}
			wantLearned(t, s, want...)
			_, err := s.Usage().ForgetLearned(t.Context(), "", "")
			Must(t, err)
		}
	}},
	{"a use that cannot be counted is an error", func(t *testing.T, p place) {
		s := p.open(t)
		for _, use := range []store.LearnedUse{
			used("q", "s", "t", 0, noon), used("q", "s", "t", -1, noon), used("q", "s", "t", math.NaN(), noon),
			used(strings.Repeat("x", 501), "s", "t", 1, noon),
		} {
			if err := s.Usage().PutLearned(t.Context(), use); err == nil || !strings.HasPrefix(err.Error(), "store: put learned use: ") {
				t.Errorf("%v: error %v", use, err)
			}
		}
		wantLearned(t, s)
	}},
	{"a provisioned set comes back as it was put", func(t *testing.T, p place) {
		s, other := p.open(t), p.open(t)
		soon := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		all := []tool.Provisioned{
			never("o", "s", "z"), never("o", "s", "a"),
			never("o", "s.a", "b"), never("o", "s", "a.b"), // the same "server.name"
			never("o", "", ""),
			{Owner: "o", ID: tool.ID{Server: "s", Name: "z", Kind: tool.KindPrompt}, Until: soon, Tokens: 1 << 40},
			{Owner: "o", ID: tool.ID{Server: "s", Name: "file:///ü?a=b", Kind: tool.KindResource}},
			{Owner: "o", ID: tool.ID{Server: "s", Name: "file:///{x}", Kind: tool.KindTemplate}},
		}
		provision(t, s, "v", "o", all...)
		wantProvisions(t, other, "v", all...)
	}},
	{"a provisioned set replaces the one before, and no other", func(t *testing.T, p place) {
		s := p.open(t)
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
			provision(t, s, test.name, "o", a, b)
			provision(t, s, test.name, "other", a)
			provision(t, s, "w", "o", b)
			provision(t, s, test.name, "o", test.put...)
			wantProvisions(t, s, test.name, append(slices.Clone(test.leave), never("other", "s", "a"))...)
			wantProvisions(t, s, "w", b)
		}
	}},
	{"owners of provisions come in order however they were put", func(t *testing.T, p place) {
		s := p.open(t)
		var want []tool.Provisioned
		for _, owner := range []string{"principal b", "anonymous", "principal a", "principal b"} {
			provision(t, s, "v", owner, never(owner, "s", "2"), never(owner, "s", "1"))
		}
		for _, owner := range []string{"anonymous", "principal a", "principal b"} {
			want = append(want, never(owner, "s", "2"), never(owner, "s", "1"))
		}
		wantProvisions(t, s, "v", want...)
	}},
	{"a provision that has ended is not told, and goes", func(t *testing.T, p place) {
		s := p.open(t)
		past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		until := func(name string, at time.Time) tool.Provisioned {
			return tool.Provisioned{Owner: "o", ID: tool.ID{Server: "s", Name: name}, Until: at}
		}
		provision(t, s, "v", "o", until("past", past), until("before 1970", time.UnixMilli(-1)), until("1970", time.UnixMilli(0)), until("future", future))
		wantProvisions(t, s, "v", until("future", future))
		if n := p.sql(t, `SELECT count(*) FROM provisions`); n != 1 {
			t.Errorf("%d rows are stored, want the one that has not ended", n)
		}
		p.sql(t, `UPDATE provisions SET until = %d`, past.UnixMilli())
		wantProvisions(t, s, "v")
		provision(t, s, "w", "other", never("other", "s", "a"))
		if n := p.sql(t, `SELECT count(*) FROM provisions`); n != 1 {
			t.Errorf("%d rows are stored, want the one just put", n)
		}
	}},
	{"of too many provisions the sets changed longest ago go, each whole", func(t *testing.T, p place) {
		s := p.open(t)
		const most, of = 100_000, 10 // tools of an owner
		p.sql(t, count(most)+` INSERT INTO provisions (view, owner, server, kind, name, until, tokens)
			SELECT 'v', CAST(100000 + (i - 1) / %[1]d AS TEXT), 's', '', CAST((i - 1) %% %[1]d AS TEXT), 0, 0 FROM n`, of)
		provision(t, s, "v", "100000", never("", "s", "changed")) // the oldest is the newest now
		var set []tool.Provisioned                                // 11 more than there is room for
		for i := range 20 {
			set = append(set, never("", "s", fmt.Sprint(i)))
		}
		provision(t, s, "w", "new", set...)
		if oldest := p.sql(t, `SELECT min(CAST(owner AS INTEGER)) FROM provisions WHERE view = 'v' AND owner <> '100000'`); oldest != 100003 {
			t.Errorf("the oldest set is that of %d, want 100003", oldest)
		}
		halves := p.sql(t, `SELECT count(*) FROM (SELECT owner FROM provisions WHERE view = 'v' GROUP BY owner HAVING count(*) < %d) AS part`, of)
		if n := p.sql(t, `SELECT count(*) FROM provisions`); n > most || n < most-of || halves != 1 { // that of 100000 has one tool
			t.Errorf("%d rows, %d sets of fewer than %d; want close to %d rows, 1 set", n, halves, of, most)
		}
		if n := len(provisions(t, s, "w")); n != len(set) {
			t.Errorf("%d of the %d just put are there", n, len(set))
		}
	}},
	{"a change of provisions that is refused changes nothing", func(t *testing.T, p place) {
		s := p.open(t)
		provision(t, s, "v", "o", never("o", "s", "a"))
		refused := fmt.Errorf("over budget")
		for name, err := range map[string]error{
			"too many tools": change(t, s, "o", make([]tool.Provisioned, 10_001), nil),
			"a long owner":   change(t, s, strings.Repeat("o", longestOwner+1), nil, nil),
			"over budget":    change(t, s, "o", nil, refused),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		wantProvisions(t, s, "v", never("o", "s", "a"))
	}},
	{"savings add up by day in UTC and view", func(t *testing.T, p place) {
		s := p.open(t)
		day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
		one := store.Savings{View: "v"}
		for i, fields := 0, reflect.ValueOf(&one).Elem(); i < fields.NumField(); i++ {
			if fields.Field(i).Kind() == reflect.Int64 {
				fields.Field(i).SetInt(int64(i) + 1)
			}
		}
		one.Cached = 3 << 40
		other := store.Savings{View: "w", Sessions: 1}
		save(t, s, day(2), one)
		save(t, s, day(1), other, one)
		save(t, s, day(1), one, store.Savings{View: "v", Answers: 90})
		sum, before, beside := one.Plus(one), one, other
		sum.Answers += 90
		sum.Day, before.Day, beside.Day = day(1), day(2), day(1)
		check := func(since time.Time, want ...store.Savings) {
			t.Helper()
			if got := savings(t, s, since); !slices.Equal(got, want) {
				t.Errorf("since %s: %+v\nwant %+v", since, got, want)
			}
		}
		check(time.Time{}, sum, beside, before)
		check(time.Now().AddDate(0, 0, -1), sum, beside)
		check(time.Now().AddDate(0, 0, 2))
		Must(t, s.Usage().ResetSavings(t.Context()))
		check(time.Time{})
		save(t, s, "2126-11-20", store.Savings{})
		save(t, s, "2126-11-21", store.Savings{})
		check(time.Date(2126, 11, 22, 1, 0, 0, 0, time.FixedZone("two hours east", 2*60*60)), store.Savings{Day: "2126-11-21"})
	}},
	{"savings are kept for 400 days", func(t *testing.T, p place) {
		s := p.open(t)
		for _, ago := range []int{401, 398, 0} {
			save(t, s, time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly), store.Savings{Sessions: int64(ago)})
		}
		if got := savings(t, s, time.Time{}); len(got) != 2 || got[0].Sessions != 0 || got[1].Sessions != 398 {
			t.Errorf("got %+v", got)
		}
	}},
	{"savings are all added or none", func(t *testing.T, p place) {
		s := p.open(t)
		good := store.Savings{Sessions: 1, Cached: math.MaxInt64}
		save(t, s, today(), good)
		if err := s.Usage().AddSavings(t.Context(), today(), []store.Savings{{View: "v", Sessions: 1}, {Cached: 1}}); err == nil {
			t.Error("a sum that does not fit: no error")
		}
		for _, day := range []string{"", "21 November", "2026-13-01"} {
			if err := s.Usage().AddSavings(t.Context(), day, []store.Savings{good}); err == nil {
				t.Errorf("day %q: no error", day)
			}
		}
		good.Day = today()
		if got := savings(t, s, time.Time{}); !slices.Equal(got, []store.Savings{good}) {
			t.Errorf("got %+v, want %+v", got, good)
		}
	}},
}

// count begins a statement that has the numbers from 1 to most as n (i).
func count(most int) string {
	return fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)`, most)
}

func used(query, server, name string, count float64, at time.Time) store.LearnedUse {
	return store.LearnedUse{Query: query, Tool: tool.ID{Server: server, Name: name}, Count: count, At: at}
}

func learn(t testing.TB, s *store.Store, uses ...store.LearnedUse) {
	t.Helper()
	for _, use := range uses {
		Must(t, s.Usage().PutLearned(t.Context(), use))
	}
}

func learned(t testing.TB, s *store.Store) []store.LearnedUse {
	t.Helper()
	all, err := s.Usage().Learned(t.Context())
	Must(t, err)
	return all
}

func wantLearned(t testing.TB, s *store.Store, want ...store.LearnedUse) {
	t.Helper()
	if got := learned(t, s); !reflect.DeepEqual(got, want) {
		t.Errorf("learned %v\nwant %v", got, want)
	}
}

// never is a provision without an end, as it comes back.
func never(owner, server, name string) tool.Provisioned {
	return tool.Provisioned{Owner: owner, ID: tool.ID{Server: server, Name: name}, Tokens: len(name)}
}

// change makes set what an owner may call in the view v, unless err is not nil.
func change(t testing.TB, s *store.Store, owner string, set []tool.Provisioned, err error) error {
	return s.Usage().ChangeProvisions(t.Context(), "v", owner, func([]tool.Provisioned) ([]tool.Provisioned, error) { return set, err })
}

func provision(t testing.TB, s *store.Store, view, owner string, set ...tool.Provisioned) {
	t.Helper()
	Must(t, s.Usage().ChangeProvisions(t.Context(), view, owner, func([]tool.Provisioned) ([]tool.Provisioned, error) { return set, nil }))
}

func provisions(t testing.TB, s *store.Store, view string) []tool.Provisioned {
	t.Helper()
	all, err := s.Usage().Provisions(t.Context(), view)
	Must(t, err)
	return all
}

func wantProvisions(t testing.TB, s *store.Store, view string, want ...tool.Provisioned) {
	t.Helper()
	if got := provisions(t, s, view); !slices.Equal(got, want) {
		t.Errorf("view %q has %v\nwant %v", view, got, want)
	}
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }

func save(t testing.TB, s *store.Store, day string, all ...store.Savings) {
	t.Helper()
	Must(t, s.Usage().AddSavings(t.Context(), day, all))
}

func savings(t testing.TB, s *store.Store, since time.Time) []store.Savings {
	t.Helper()
	all, err := s.Usage().Savings(t.Context(), since)
	Must(t, err)
	return all
}
