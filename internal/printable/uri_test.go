package printable

import "testing"

func TestURIsAreShownWithoutWhatMayBeSecret(t *testing.T) {
	for uri, want := range map[string]string{
		"":                                      "",
		"shop_look":                             "shop_look",
		"file:///home/me/a@b.txt":               "file:///home/me/a@b.txt",
		"https://tools.example/a?token=x":       "https://tools.example/a",
		"postgres://me:secret@db.example/t":     "postgres://db.example/t",
		"postgres://me:%zz@s@db.example:5432":   "postgres://db.example:5432", // which is no URL
		"db://{user}:{password}@host/{t}?x={x}": "db://host/{t}",
		"mailto:me@example.com?body=x":          "mailto:me@example.com",
	} {
		if got := URI(uri); got != want {
			t.Errorf("%q is shown as %q, want %q", uri, got, want)
		}
	}
}
