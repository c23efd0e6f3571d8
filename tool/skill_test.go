package tool

import (
	"fmt"
	"strings"
	"testing"
)

func TestSkillsOfStrangersAreChecked(t *testing.T) {
	sum := SkillDigest(nil)
	file := func(uri string) string { return fmt.Sprintf(`{"uri":%q,"digest":%q,"size":0}`, uri, sum) }
	entry := func(uri, name, resources string) string {
		return fmt.Sprintf(`{"uri":%q,"frontmatter":{"name":%q,"description":"d","x":[1.0]},"resources":%s}`, uri, name, resources)
	}
	const uri, root = "skill://a/b/SKILL.md", "skill://a/b/"
	with := func(file string) string {
		return entry(uri, "b", `[`+fmt.Sprintf(`{"uri":%q,"digest":%q,"size":0}`, uri, sum)+`,`+file+`]`)
	}
	many := make([]string, MaxSkillFiles)
	for i := range many {
		many[i] = file(fmt.Sprint(root, i))
	}
	for name, test := range map[string]struct{ raw, problem string }{
		"a skill":                 {with(file(root + "references/X Y%20ü.md")), ""},
		"a dynamic one":           {entry(uri, "b", `"dynamic"`), ""},
		"of another scheme":       {entry("github://o/r/b/SKILL.md", "b", `"dynamic"`), ""},
		"no resources":            {`{"uri":"` + uri + `","frontmatter":{"name":"b","description":"d"}}`, "resources is missing"},
		"other resources":         {entry(uri, "b", `"x"`), "resources is text, not a list"},
		"no description":          {`{"uri":"` + uri + `","frontmatter":{"name":"b"},"resources":"dynamic"}`, "frontmatter.description is missing"},
		"not a SKILL.md":          {entry("skill://a/b/README.md", "b", `"dynamic"`), "does not end with /SKILL.md"},
		"another directory":       {entry(uri, "c", `"dynamic"`), `not named "c"`},
		"a bad name":              {entry("skill://a/B/SKILL.md", "B", `"dynamic"`), "lower-case"},
		"a long name":             {entry("skill://"+strings.Repeat("b", 65)+"/SKILL.md", strings.Repeat("b", 65), `"dynamic"`), "1 to 64"},
		"without its SKILL.md":    {entry(uri, "b", `[`+file(root+"x")+`]`), "resources lacks"},
		"a file twice":            {with(file(uri)), "twice"},
		"a file outside":          {with(file("skill://a/c/x")), "outside"},
		"a file of a longer name": {with(file("skill://a/bc/x")), "outside"},
		"a traversal":             {with(file(root + "../c/x")), `".."`},
		"an escaped one":          {with(file(root + "%2e%2E/c")), `".."`},
		"a Windows one":           {with(file(root + `..\..\c`)), `".."`},
		"a dot":                   {with(file(root + "./x")), `"."`},
		"an empty element":        {with(file(root + "x//y")), "empty"},
		"a directory":             {with(file(root + "x/")), "empty"},
		"a control character":     {with(file(root + "x%0ay")), "characters"},
		"a query":                 {with(file(root + "x?y")), "characters"},
		"a bad digest":            {with(`{"uri":"` + root + `x","digest":"sha256:AB","size":1}`), "digest"},
		"a bad size":              {with(`{"uri":"` + root + `x","digest":"` + sum + `","size":-1}`), "size"},
		"no size":                 {with(`{"uri":"` + root + `x","digest":"` + sum + `"}`), ""},
		"too large together":      {with(fmt.Sprintf(`{"uri":"%sx","digest":"%s","size":%d},{"uri":"%sy","digest":"%[2]s","size":1}`, root, sum, MaxSkillBytes, root)), "bytes, more than"},
		"too many":                {with(strings.Join(many, ",")), "513 files, more than 512"},
	} {
		def, mended, err := TakeIn(KindSkill, "s", []byte(test.raw))
		switch {
		case test.problem == "" && (err != nil || len(mended) > 0 || string(def.Raw) != test.raw):
			t.Errorf("%s: %v %v", name, err, mended)
		case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
			t.Errorf("%s: %v, want %s", name, err, test.problem)
		}
	}
}

func TestFilesOfASkillAreVerified(t *testing.T) {
	file := SkillResource{URI: "x", Digest: SkillDigest([]byte("abc")), Size: new(int64(3))}
	for content, problem := range map[string]string{"abc": "", "abd": "digest", "abcd": "4 bytes"} {
		if err := file.Verify([]byte(content)); (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", content, err)
		}
	}
}
