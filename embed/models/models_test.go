package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/must"
)

// folderWith writes files into a folder of that name.
func folderWith(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for file, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(file))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func smallFiles() map[string]string {
	files := tinyFiles()
	files[weightsFile] = safetensors(100)
	return files
}

// install brings a small model here and returns its folder.
func install(t *testing.T, name string) string {
	t.Helper()
	must.Do(t, Pull(t.Context(), name, folderWith(t, "tiny", smallFiles()), mute))
	return must.Get(Locate(name))(t)
}

func ownModels(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "models")
	t.Setenv("MCPPROXY_MODELS_DIR", root)
	return root
}

func TestDir(t *testing.T) {
	t.Setenv("MCPPROXY_MODELS_DIR", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("this user has no cache folder:", err)
	}
	if dir, err := Dir(); err != nil || dir != filepath.Join(cache, "toolfinch", "models") {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("MCPPROXY_MODELS_DIR", "mine")
	if dir, err := Dir(); err != nil || !filepath.IsAbs(dir) || filepath.Base(dir) != "mine" {
		t.Errorf("%s, %v", dir, err)
	}
}

func TestNames(t *testing.T) {
	ownModels(t)
	for name, want := range map[string]string{
		"all-MiniLM-L6-v2":                       "all-MiniLM-L6-v2",
		"sentence-transformers/all-MiniLM-L6-v2": "all-MiniLM-L6-v2",
		"intfloat/e5-small-v2":                   "intfloat--e5-small-v2",
		"my_model.v1":                            "my_model.v1",
	} {
		p, err := placeOf(name)
		if err != nil || filepath.Base(p.dir) != want {
			t.Errorf("%s is kept in %s (%v), want %s", name, p.dir, err, want)
		}
	}
	for _, bad := range []string{
		"", ".", "..", "../x", "x/..", "a/../b", "/", "/etc", "a/", "/a", "a/b/c", `a\b`, `..\x`, "a\x00b", "a b", "-rf", ".hidden", "a..b",
		"a--b", "a-/-b", "a/b--c", "a.", "C:", "c:/x", "a~b", "sentence-transformers/", strings.Repeat("x", 99), "modèle",
	} {
		for op, err := range map[string]error{
			"Pull":   Pull(t.Context(), bad, ".", mute),
			"Remove": Remove(bad),
			"Verify": Verify(t.Context(), bad),
		} {
			if !errors.Is(err, ErrName) {
				t.Errorf("%s(%q): %v", op, bad, err)
			}
		}
		if _, err := Locate(bad); !errors.Is(err, ErrName) {
			t.Errorf("Locate(%q): %v", bad, err)
		}
	}
	if !Same("sentence-transformers/x", "x") || Same("a/x", "x") {
		t.Error("Same is wrong")
	}
}

func TestLocateSeesDamage(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(dir string) error
		says   string
	}{
		{"a file is gone", func(dir string) error { return os.Remove(filepath.Join(dir, "1_Pooling", "config.json")) }, "1_Pooling/config.json is missing"},
		{"a file was cut", func(dir string) error { return os.Truncate(filepath.Join(dir, weightsFile), 40) }, weightsFile + " has 40 bytes instead of 129"},
		{"a file became a folder", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "modules.json")), os.Mkdir(filepath.Join(dir, "modules.json"), 0o755))
		}, "modules.json is not a file"},
		{"the manifest is gone", func(dir string) error { return os.Remove(filepath.Join(dir, manifestFile)) }, manifestFile + " is missing"},
		{"the manifest is no JSON", func(dir string) error { return os.WriteFile(filepath.Join(dir, manifestFile), []byte("{"), 0o644) }, "not readable"},
		{"the manifest names too little", func(dir string) error { return os.WriteFile(filepath.Join(dir, manifestFile), []byte("{}"), 0o644) }, "names no config.json"},
		{"the manifest leads out", func(dir string) error {
			m := Manifest{Files: map[string]File{"config.json": {}, tokenizerFile: {}, weightsFile: {}, "../../x": {}}}
			raw, _ := json.Marshal(m)
			for file := range m.Files {
				if file != "../../x" {
					if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
						return err
					}
				}
			}
			return os.WriteFile(filepath.Join(dir, manifestFile), raw, 0o644)
		}, `names "../../x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			ownModels(t)
			dir := install(t, tiny)
			must.Do(t, test.damage(dir))
			var damaged *DamagedError
			if _, err := Locate(tiny); !errors.As(err, &damaged) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "toolfinch model pull org/tiny") {
				t.Errorf("Locate: %v, want %q", err, test.says)
			}
			all, err := List()
			if err != nil || len(all) != 1 || !errors.As(all[0].Err, &damaged) {
				t.Errorf("List: %+v, %v", all, err)
			}
			install(t, tiny) // mends it
			if err := Remove(tiny); err != nil {
				t.Error(err)
			}
		})
	}
}

// Locate trusts sizes; Verify reads.
func TestVerifySeesChangedContent(t *testing.T) {
	ownModels(t)
	dir := install(t, tiny)
	must.Do(t, Verify(t.Context(), tiny))
	must.Do(t, os.WriteFile(filepath.Join(dir, "modules.json"), []byte("[ "), 0o644))
	if _, err := Locate(tiny); err != nil {
		t.Error(err)
	}
	var damaged *DamagedError
	if err := Verify(t.Context(), tiny); !errors.As(err, &damaged) || damaged.Reason != "the content of modules.json has changed" {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Verify(ended, tiny); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestListAndRemove(t *testing.T) {
	root := ownModels(t)
	if all, err := List(); err != nil || len(all) != 0 {
		t.Fatalf("without a folder: %v, %v", all, err)
	}
	if err := Remove(tiny); !errors.Is(err, ErrMissing) {
		t.Errorf("Remove of nothing: %v", err)
	}
	install(t, tiny)
	install(t, "own")
	killed := must.Get(placeOf("killed"))(t).tempPrefix() + "1"
	for _, stray := range []string{"not a model", ".git", "a--b--c", killed} {
		must.Do(t, os.Mkdir(filepath.Join(root, stray), 0o755))
	}
	must.Do(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o644))
	names := func() string {
		all := must.Get(List())(t)
		var names []string
		for _, info := range all {
			names = append(names, fmt.Sprint(info.Name, " ", info.Err == nil))
		}
		return strings.Join(names, ", ")
	}
	if got, want := names(), "org/tiny true, own true"; got != want {
		t.Errorf("list %q, want %q", got, want)
	}
	for _, name := range []string{tiny, "killed"} {
		if err := Remove(name); err != nil {
			t.Error(err)
		}
	}
	if got, want := names(), "own true"; got != want || exists(filepath.Join(root, killed)) {
		t.Errorf("list %q, want %q", got, want)
	}
}

func TestPullFromAFolder(t *testing.T) {
	ownModels(t)
	files := smallFiles()
	files["README.md"] = "not needed"
	dir := folderWith(t, "mine", files)
	must.Do(t, Pull(t.Context(), "mine", dir, mute))
	delete(files, "README.md")
	installed(t, "mine", files)
	// Files that the folder has no more are not left from before.
	must.Do(t, os.Remove(filepath.Join(dir, "modules.json")))
	delete(files, "modules.json")
	must.Do(t, Pull(t.Context(), "mine", dir, mute))
	installed(t, "mine", files)
	// A model may be copied onto itself.
	must.Do(t, Pull(t.Context(), "mine", must.Get(Locate("mine"))(t), mute))
	installed(t, "mine", files)
}

// The folder of another program's cache has links to the files.
func TestPullFollowsLinks(t *testing.T) {
	ownModels(t)
	dir := folderWith(t, "links", nil)
	for file := range smallFiles() {
		path := filepath.Join(dir, filepath.FromSlash(file))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		target := filepath.Join(folderWith(t, "blob", map[string]string{"x": smallFiles()[file]}), "x")
		if err := os.Symlink(target, path); err != nil {
			t.Skip("no links here:", err)
		}
	}
	must.Do(t, Pull(t.Context(), "links", dir, mute))
	installed(t, "links", smallFiles())
}

func TestPullFromAFolderThatIsNone(t *testing.T) {
	ownModels(t)
	for _, test := range []struct {
		name  string
		files map[string]string
		says  []string
	}{
		{"nothing", map[string]string{"README.md": ""}, []string{"lacks config.json, model.safetensors, tokenizer.json (or vocab.txt)"}},
		{"PyTorch", map[string]string{"config.json": "{}", "vocab.txt": "a", "pytorch_model.bin": "x"}, []string{"lacks model.safetensors", "pytorch_model.bin", "safetensors only"}},
		{"ONNX", map[string]string{"config.json": "{}", "vocab.txt": "a", "onnx/model.onnx": "x"}, []string{"onnx/model.onnx", "safetensors only"}},
		{"git pointers", map[string]string{"config.json": "{}", "vocab.txt": "a", weightsFile: "version https://git-lfs.github.com/spec/v1"}, []string{"git lfs pull"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Pull(t.Context(), "x", folderWith(t, "x", test.files), mute)
			for _, part := range test.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want %q", err, part)
				}
			}
			if all, err := List(); err != nil || len(all) != 0 {
				t.Errorf("left behind: %v, %v", all, err)
			}
		})
	}
	if err := Pull(t.Context(), "x", filepath.Join(t.TempDir(), "no"), mute); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	code := syscall.ENOSPC
	if runtime.GOOS == "windows" {
		code = 112
	}
	if !diskFull(&os.PathError{Op: "write", Path: "x", Err: code}) || diskFull(os.ErrPermission) {
		t.Error("a full disk is not told from other errors")
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[Bytes]string{0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 90_868_376: "90.9 MB", 4 << 30: "4.29 GB"} {
		if got := n.String(); got != want {
			t.Errorf("%d is %q, want %q", int64(n), got, want)
		}
	}
}
