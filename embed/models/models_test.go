package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gofrs/flock"

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
	must.Do(t, Pull(t.Context(), name, Options{From: FromDir, Dir: folderWith(t, "tiny", smallFiles())}))
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
		"a--b", "a-/-b", "a/b--c", "a.", "C:", "c:/x", "x.partial", "x.old", "org/x.lock", "sentence-transformers/", strings.Repeat("x", 99), "modèle",
	} {
		for op, err := range map[string]error{
			"Pull":   Pull(t.Context(), bad, Options{From: FromDir, Dir: "."}),
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
	for _, stray := range []string{"not a model", ".git", "a--b--c", "half.partial"} {
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
	if got, want := names(), "half false, org/tiny true, own true"; got != want {
		t.Errorf("list %q, want %q", got, want)
	}
	for _, name := range []string{tiny, "half"} {
		if err := Remove(name); err != nil {
			t.Error(err)
		}
	}
	if got, want := names(), "own true"; got != want {
		t.Errorf("list %q, want %q", got, want)
	}
}

func TestRemoveDuringAPull(t *testing.T) {
	ownModels(t)
	install(t, tiny)
	p := must.Get(placeOf(tiny))(t)
	lock := flock.New(p.lock())
	if ok, err := lock.TryLock(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := Remove(tiny); !errors.Is(err, ErrBusy) {
		t.Errorf("Remove: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	opts := Options{From: FromDir, Dir: folderWith(t, "tiny", smallFiles()), Note: func(string) { cancel() }}
	if err := Pull(ended, tiny, opts); !errors.Is(err, context.Canceled) {
		t.Errorf("a waiting pull: %v", err)
	}
	must.Do(t, lock.Close())
	if err := Remove(tiny); err != nil {
		t.Error(err)
	}
}

// A crash between the two renames of a replacement loses no model.
func TestPullAfterACrashInTheSwap(t *testing.T) {
	ownModels(t)
	dir := install(t, tiny)
	must.Do(t, os.Rename(dir, dir+oldSuffix))
	if err := Pull(t.Context(), tiny, Options{From: FromDir, Dir: t.TempDir()}); err == nil {
		t.Fatal("pulled an empty folder")
	}
	if err := Verify(t.Context(), tiny); err != nil {
		t.Errorf("the old model is not back: %v", err)
	}
}

func TestPullFromAFolder(t *testing.T) {
	ownModels(t)
	files := smallFiles()
	files["README.md"] = "not needed"
	dir := folderWith(t, "mine", files)
	var done []string
	opts := Options{From: FromDir, Dir: dir, Progress: func(file string, n, total int64) {
		if n == total {
			done = append(done, file)
		}
	}}
	must.Do(t, Pull(t.Context(), "mine", opts))
	delete(files, "README.md")
	installed(t, "mine", files)
	if slices.Sort(done); !slices.Equal(done, slices.Sorted(maps.Keys(files))) {
		t.Errorf("complete: %v", done)
	}
	// Files that the folder has no more are not left from before.
	must.Do(t, os.Remove(filepath.Join(dir, "modules.json")))
	delete(files, "modules.json")
	must.Do(t, Pull(t.Context(), "mine", opts))
	installed(t, "mine", files)
	// A model may be copied onto itself.
	opts.Dir, _ = Locate("mine")
	must.Do(t, Pull(t.Context(), "mine", opts))
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
	must.Do(t, Pull(t.Context(), "links", Options{From: FromDir, Dir: dir}))
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
			err := Pull(t.Context(), "x", Options{From: FromDir, Dir: folderWith(t, "x", test.files)})
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
	if err := Pull(t.Context(), "x", Options{From: FromDir, Dir: filepath.Join(t.TempDir(), "no")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if err := Pull(t.Context(), "x", Options{From: "floppy"}); err == nil || !strings.Contains(err.Error(), "hub, npm or dir") {
		t.Errorf("error %v", err)
	}
}

func TestAFullDiskSaysWhatToDo(t *testing.T) {
	ownModels(t)
	p := must.Get(placeOf(tiny))(t)
	code := syscall.ENOSPC
	if runtime.GOOS == "windows" {
		code = 112
	}
	err := explain(t.Context(), p, &os.PathError{Op: "write", Path: "x", Err: code})
	if !errors.Is(err, code) || !strings.Contains(err.Error(), "make room") || !strings.Contains(err.Error(), "MCPPROXY_MODELS_DIR") {
		t.Errorf("error %v", err)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[Bytes]string{0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 90_868_376: "90.9 MB", 4 << 30: "4.29 GB"} {
		if got := n.String(); got != want {
			t.Errorf("%d is %q, want %q", int64(n), got, want)
		}
	}
}
