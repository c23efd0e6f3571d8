package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	run(t, connect(t, "files", dir), []call{
		{tool: "list_files", arguments: `{}`, want: `{"entries":[],"truncated":false}`},
		{tool: "write_file", arguments: `{"path":"a/b/one.txt","content":"first\nSecond\n"}`, want: `{"path":"a/b/one.txt"}`},
		{tool: "write_file", arguments: `{"path":"two.md","content":"second file"}`, want: `{"path":"two.md"}`},
		{tool: "read_file", arguments: `{"path":"a/b/one.txt"}`, want: "first\nSecond\n"},
		{tool: "write_file", arguments: `{"path":"a/b/one.txt","content":"Second"}`, want: `{"path":"a/b/one.txt"}`},
		{tool: "read_file", arguments: `{"path":"a/b/../b/one.txt"}`, want: "Second"},
		{tool: "read_file", arguments: `{"path":"a"}`, fails: "a is not a file"},
		{tool: "read_file", arguments: `{"path":"none.txt"}`, fails: "none.txt: "},
		{tool: "write_file", arguments: `{"path":"a","content":""}`, fails: "a is not a file"},
		{tool: "write_file", arguments: `{"path":"two.md/x","content":""}`, fails: "two.md"},
		{tool: "list_files", arguments: `{"path":"a"}`, has: []string{`[{"path":"a/b","type":"directory","size":0,`, `}],`}},
		{tool: "list_files", arguments: `{"path":"two.md"}`, fails: "two.md is not a folder"},
		{tool: "list_files", arguments: `{"pattern":"*.txt","recursive":true}`, has: []string{`"path":"a/b/one.txt","type":"file","size":6`, `"truncated":false`}},
		{tool: "list_files", arguments: `{"pattern":"?","recursive":true}`, has: []string{`"path":"a"`, `"path":"a/b"`}},
		{tool: "list_files", arguments: `{"pattern":"["}`, fails: "["},
		{tool: "list_files", arguments: `{"path":"none"}`, fails: "none: "},
		{tool: "grep_files", arguments: `{"pattern":"(?i)^second"}`, want: "a/b/one.txt:1: Second\ntwo.md:1: second file\n"},
		{tool: "grep_files", arguments: `{"pattern":"("}`, fails: "missing closing )"},
		{tool: "delete_file", arguments: `{"path":"a"}`, fails: "a: "},
		{tool: "delete_file", arguments: `{"path":"a","recursive":true}`, want: `{"path":"a"}`},
		{tool: "delete_file", arguments: `{"path":"a"}`, fails: "a: "},
		{tool: "delete_file", arguments: `{"path":".","recursive":true}`, fails: "itself"},
		{tool: "delete_file", arguments: `{"path":"two.md"}`, want: `{"path":"two.md"}`},
		{tool: "list_files", arguments: `{}`, want: `{"entries":[],"truncated":false}`},
	})
}

func TestFilesStayInTheirFolder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "inside")
	secret := filepath.Join(parent, "secret.txt")
	must.Do(t, os.Mkdir(dir, 0o700))
	must.Do(t, os.WriteFile(secret, []byte("secret"), 0o600))
	paths := []string{"../secret.txt", "a/../../secret.txt", "..", "/etc/passwd"}
	if runtime.GOOS != "windows" { // which lets only some users make links
		for link, target := range map[string]string{"link": secret, "up": ".."} {
			must.Do(t, os.Symlink(target, filepath.Join(dir, link)))
		}
		paths = append(paths, "link", "up/secret.txt")
	}
	c := connect(t, "files", dir)
	for _, path := range paths {
		for _, try := range []call{
			{tool: "read_file", arguments: `{"path":%q}`},
			{tool: "write_file", arguments: `{"path":%q,"content":"overwritten"}`},
			{tool: "list_files", arguments: `{"path":%q}`},
		} {
			try.arguments = fmt.Sprintf(try.arguments, path)
			try.fails = " " // any error; never the content
			try.run(t, c)
		}
	}
	run(t, c, []call{
		{tool: "grep_files", arguments: `{"pattern":"^sec"}`, has: []string{"not searched: link: "}},
		{tool: "delete_file", arguments: `{"path":"../secret.txt"}`, fails: "outside"},
	})
	if content, err := os.ReadFile(secret); err != nil || string(content) != "secret" {
		t.Errorf("%q, %v", content, err)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	write("binary", []byte("a\x00b match"))
	write("long", []byte(strings.Repeat("match "+strings.Repeat("x", 150)+"\n", 6000)))
	if f, err := os.Create(filepath.Join(dir, "huge")); err != nil {
		t.Fatal(err)
	} else if err := f.Truncate(maxFile + 1); err != nil {
		t.Fatal(err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range maxListed + 1 {
		write(fmt.Sprintf("many%04d.x", i), nil)
	}
	run(t, connect(t, "files", dir), []call{
		{tool: "read_file", arguments: `{"path":"binary"}`, fails: "not a text file"},
		{tool: "read_file", arguments: `{"path":"huge"}`, fails: "larger than"},
		{tool: "write_file", arguments: fmt.Sprintf(`{"path":"x","content":%q}`, strings.Repeat("x", maxFile+1)), fails: "limit"},
		{tool: "grep_files", arguments: `{"pattern":"match"}`, has: []string{"binary is not a text file", "huge is larger", "long:1: match", "maybe more"}},
		{tool: "list_files", arguments: `{}`, has: []string{`"truncated":true`}},
		{tool: "list_files", arguments: `{"pattern":"*.x"}`, has: []string{`"truncated":true`}},
	})
}
