package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	run(t, connect(t, "files", dir), []call{
		{tool: "list_directory", arguments: `{}`, want: `{"entries":[],"truncated":false}`},
		{tool: "write_file", arguments: `{"path":"a/b/one.txt","content":"first\nSecond\nthird\n"}`, want: `{"path":"a/b/one.txt","size":19}`},
		{tool: "append_file", arguments: `{"path":"a/b/one.txt","content":"fourth"}`, want: `{"path":"a/b/one.txt","size":25}`},
		{tool: "append_file", arguments: `{"path":"two.md","content":"second file"}`, want: `{"path":"two.md","size":11}`},
		{tool: "read_file", arguments: `{"path":"a/b/one.txt"}`, want: "first\nSecond\nthird\nfourth"},
		{tool: "read_file", arguments: `{"path":"a/b/one.txt","first_line":2,"max_lines":2}`, want: "Second\nthird\n"},
		{tool: "read_file", arguments: `{"path":"a/b/one.txt","first_line":9}`, want: ""},
		{tool: "read_file", arguments: `{"path":"a/b/one.txt","first_line":-1}`, fails: "first_line"},
		{tool: "read_file", arguments: `{"path":"a"}`, fails: "a is not a file"},
		{tool: "read_file", arguments: `{"path":"none.txt"}`, fails: "none.txt does not exist"},
		{tool: "write_file", arguments: `{"path":"a","content":""}`, fails: "a is not a file"},
		{tool: "write_file", arguments: `{"path":"two.md/x","content":""}`, fails: "two.md"},
		{tool: "list_directory", arguments: `{"path":"a"}`, has: []string{`{"path":"a/b","type":"directory","size":0,`}},
		{tool: "list_directory", arguments: `{"path":"two.md"}`, fails: "two.md"},
		{tool: "file_info", arguments: `{"path":"two.md"}`, has: []string{`"type":"file","size":11,"modified":"2`}},
		{tool: "find_files", arguments: `{"pattern":"*.txt"}`, has: []string{`"path":"a/b/one.txt"`, `"truncated":false`}},
		{tool: "find_files", arguments: `{"pattern":"?"}`, has: []string{`"path":"a"`, `"path":"a/b"`}},
		{tool: "find_files", arguments: `{"pattern":"["}`, fails: "["},
		{tool: "find_files", arguments: `{"pattern":"*","path":"none"}`, fails: "none does not exist"},
		{tool: "grep_files", arguments: `{"pattern":"^second","ignore_case":true}`,
			want: `{"matches":[{"path":"a/b/one.txt","line":2,"text":"Second"},{"path":"two.md","line":1,"text":"second file"}],"truncated":false,"skipped":0}`},
		{tool: "grep_files", arguments: `{"pattern":"second","name":"*.md"}`, has: []string{`[{"path":"two.md","line":1,`}},
		{tool: "grep_files", arguments: `{"pattern":"("}`, fails: "missing closing )"},
		{tool: "make_directory", arguments: `{"path":"c/d"}`, want: `{"path":"c/d"}`},
		{tool: "make_directory", arguments: `{"path":"c/d"}`, want: `{"path":"c/d"}`},
		{tool: "move_file", arguments: `{"from":"two.md","to":"a/b/one.txt"}`, fails: "a/b/one.txt exists already"},
		{tool: "move_file", arguments: `{"from":"two.md","to":"e/three.md"}`, want: `{"path":"e/three.md"}`},
		{tool: "move_file", arguments: `{"from":"two.md","to":"e/four.md"}`, fails: "two.md does not exist"},
		{tool: "delete_file", arguments: `{"path":"a"}`, fails: "set recursive"},
		{tool: "delete_file", arguments: `{"path":"a","recursive":true}`, want: `{"path":"a"}`},
		{tool: "delete_file", arguments: `{"path":"a"}`, fails: "a does not exist"},
		{tool: "delete_file", arguments: `{"path":".","recursive":true}`, fails: "itself"},
		{tool: "delete_file", arguments: `{"path":"e/three.md"}`, want: `{"path":"e/three.md"}`},
		{tool: "list_directory", arguments: `{}`, has: []string{`"path":"c"`, `"path":"e"`}},
	})
}

func TestFilesStayInTheirFolder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "inside")
	secret := filepath.Join(parent, "secret.txt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := []string{"../secret.txt", "a/../../secret.txt", "..", "/etc/passwd"}
	if runtime.GOOS != "windows" { // which lets only some users make links
		for link, target := range map[string]string{"link": secret, "up": ".."} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, "link", "up/secret.txt")
	}
	c := connect(t, "files", dir)
	for _, path := range paths {
		for _, try := range []call{
			{tool: "read_file", arguments: `{"path":%q}`},
			{tool: "write_file", arguments: `{"path":%q,"content":"overwritten"}`},
			{tool: "append_file", arguments: `{"path":%q,"content":"overwritten"}`},
			{tool: "file_info", arguments: `{"path":%q}`},
			{tool: "list_directory", arguments: `{"path":%q}`},
			{tool: "move_file", arguments: `{"from":"link","to":%q}`},
			{tool: "make_directory", arguments: `{"path":%q}`},
			{tool: "find_files", arguments: `{"pattern":"*.txt","path":%q}`},
		} {
			try.arguments = fmt.Sprintf(try.arguments, path)
			try.fails = " " // any error; never the content
			try.run(t, c)
		}
	}
	run(t, c, []call{
		{tool: "grep_files", arguments: `{"pattern":"secret"}`, has: []string{`{"matches":[]`}},
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
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("binary", []byte("a\x00b match"))
	write("long", []byte(strings.Repeat("match ", 500_000)+"\nlast\n"))
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
		{tool: "read_file", arguments: `{"path":"long"}`, fails: "ask for fewer lines"},
		{tool: "read_file", arguments: `{"path":"long","first_line":2}`, want: "last\n"},
		{tool: "append_file", arguments: `{"path":"huge","content":"x"}`, fails: "larger"},
		{tool: "write_file", arguments: fmt.Sprintf(`{"path":"x","content":%q}`, strings.Repeat("x", maxContent+1)), fails: "limit"},
		{tool: "grep_files", arguments: `{"pattern":"match"}`, has: []string{`"line":1`, `"skipped":2`}},
		{tool: "list_directory", arguments: `{}`, has: []string{`"truncated":true`}},
		{tool: "find_files", arguments: `{"pattern":"*.x"}`, has: []string{`"truncated":true`}},
	})
}
