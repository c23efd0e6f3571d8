package document

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestFrontmatter(t *testing.T) {
	var bomb strings.Builder
	for i := range 30 {
		fmt.Fprintf(&bomb, "a%[2]d: &a%[2]d [*a%[1]d, *a%[1]d]\n", i, i+1)
	}
	for _, test := range []struct{ name, markdown, want, wrong string }{
		{"verbatim", "---\nname: a-b\ndescription: |\n  two\n  lines\nversion: 1.10\nn: 7\non: yes\nok: true\nnone:\nday: 2026-01-02\ntags: [a, \"1\"]\nmetadata:\n  x.y: <b>\n---\n# T\n",
			`{"name":"a-b","description":"two\nlines\n","version":1.10,"n":7,"on":"yes","ok":true,"none":null,"day":"2026-01-02","tags":["a","1"],"metadata":{"x.y":"<b>"}}`, ""},
		{"line ends, byte order mark", "\ufeff---\r\nname: a\r\n--- \r\n", `{"name":"a"}`, ""},
		{"text ends with the fence", "---\nname: a\n---", `{"name":"a"}`, ""},
		{"dashes inside", "---\nname: a --- b\n---\n---\n", `{"name":"a --- b"}`, ""},
		{"alias", "---\na: &x [1]\nb: *x\n---\n", `{"a":[1],"b":[1]}`, ""},
		{"none", "# T\n---\nname: a\n---\n", "", "no frontmatter"},
		{"open", "---\nname: a\n", "", "no frontmatter"},
		{"empty", "---\n---\n", "", "empty"},
		{"list", "---\n- a\n---\n", "", "a list, not a mapping"},
		{"invalid", "---\nname: [\n---\n", "", "not valid YAML"},
		{"duplicate", "---\nname: a\nmeta:\n  k: 1\n  k: 2\n---\n", "", `line 5: its frontmatter has the key "k" twice`},
		{"not UTF-8", "---\nname: \xff\n---\n", "", "not a text file"},
		{"bomb", "---\na0: &a0 [x]\n" + bomb.String() + "---\n", "", "aliases resolved"},
		{"long", "---\nname: " + strings.Repeat("a", maxFrontmatter) + "\n---\n", "", "more than 65536"},
		{"deep", "---\nname: " + strings.Repeat("[", 200) + "\n---\n", "", "nested deeper"},
	} {
		got, err := Frontmatter([]byte(test.markdown))
		if string(got) != test.want || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %s, %v", test.name, got, err)
		}
	}
}

func TestHeadings(t *testing.T) {
	got := Headings([]byte("---\n# of YAML\nname: a\n---\n# One #\r\n\n```sh\n# code\n~~~\n```\n ## Two ## x\n#none\n~~~~\n# code\n~~~\n~~~~\n###\tC#\n####### seven\n    # code\n#\n###### Six  ##  \n"))
	if want := []string{"One", "Two ## x", "C#", "Six"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Headings([]byte(strings.Repeat("# "+strings.Repeat("é", 200)+"\n", 200))); len(got) != maxHeadings || len(got[0]) > maxHeading {
		t.Errorf("%d headings of %d bytes", len(got), len(got[0]))
	}
}
