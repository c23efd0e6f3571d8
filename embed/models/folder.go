package models

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// folder copies a model from a folder of the user.
type folder string

func (d folder) fill(ctx context.Context, w *work) error {
	if d == "" {
		return errors.New("no folder was named")
	}
	dir, err := filepath.Abs(string(d))
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	if err := d.complete(dir); err != nil {
		return err
	}
	if err := w.begin(ctx, "dir:"+dir, "", false); err != nil {
		return err
	}
	for _, f := range layout {
		err := d.copy(ctx, w, filepath.Join(dir, filepath.FromSlash(f.name)), f)
		if errors.Is(err, fs.ErrNotExist) && !f.need {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete says what a folder lacks to be a model.
func (folder) complete(dir string) error {
	has := func(file string) bool {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(file)))
		return err == nil && info.Mode().IsRegular()
	}
	lacking := missing(has)
	if lacking == nil {
		return nil
	}
	err := fmt.Errorf("%s lacks %s", dir, strings.Join(lacking, ", "))
	for _, other := range []string{"pytorch_model.bin", "onnx/model.onnx", "model.onnx", "onnx", "tf_model.h5"} {
		if !has(weightsFile) && exists(filepath.Join(dir, filepath.FromSlash(other))) {
			return fmt.Errorf("%w; it has %s, but the weights are read from safetensors only", err, other)
		}
	}
	return err
}

func (folder) copy(ctx context.Context, w *work, path string, f wanted) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if info.Size() > f.limit {
		return fmt.Errorf("%s %w: %s, at most %s", path, errTooLarge, Bytes(info.Size()), Bytes(f.limit))
	}
	return w.add(ctx, f.name, in, f.limit, File{Size: info.Size()})
}
