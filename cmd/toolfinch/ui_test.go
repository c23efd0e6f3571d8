package main

import (
	"os"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// Where command lines are for everybody, what a browser opens is a file that its user alone
// reads, made anew each time.
func TestAFileLeadsToALink(t *testing.T) {
	dir := t.TempDir()
	for _, link := range []string{"http://127.0.0.1:1/ui/login?link=A", "http://127.0.0.1:1/ui/login?link=B&x=\"><script>"} {
		file := must.Get(leadingTo(dir, link))(t)
		text := must.Get(os.ReadFile(file))(t)
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file has the mode %v (%v)", info.Mode(), err)
		}
		if got := string(text); !strings.Contains(got, "url=http://127.0.0.1:1/ui/login?link=") || strings.Contains(got, "<script>") {
			t.Errorf("the file is %s", got)
		}
	}
}
