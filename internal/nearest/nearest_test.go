package nearest

import (
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	names := []string{"github_search_code", "github_search_issues", "files_search", "clock_now", "call_timeout", "clock_now"}
	for _, test := range []struct {
		word  string
		n     int
		share float64
		want  []string
	}{
		{"github_serch_code", 3, Close, []string{"github_search_code", "github_search_issues"}},
		{"clock_nwo", 3, Close, []string{"clock_now"}},
		{"clock_nwo", 3, Loose, []string{"clock_now"}},
		{"github_find_code", 3, Close, nil},
		{"github_find_code", 3, Loose, []string{"github_search_code", "github_search_issues"}},
		{"GitHub.search-code", 1, Close, []string{"github_search_code"}},
		{"callTimeout", 3, Close, []string{"call_timeout"}},
		{"clock_onw", 3, Close, []string{"clock_now"}},
		{"search", 2, Close, []string{"github_search_code", "github_search_issues"}}, // they have it in them
		{"zzz", 3, Loose, nil},
		{"clock/now", 3, Close, []string{"clock_now"}},
		{"gmail_send", 3, Loose, nil}, // none shares a word
		{"clck_nw", 3, Loose, []string{"clock_now"}},
		{"", 3, Loose, nil},
		{"_.-", 3, Loose, nil},
		{strings.Repeat("x", 1<<20), 3, Close, nil},
	} {
		if got := Names(test.word, names, test.n, test.share); !slices.Equal(got, test.want) {
			t.Errorf("Names(%.20q, %d, %.2f) = %q, want %q", test.word, test.n, test.share, got, test.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
