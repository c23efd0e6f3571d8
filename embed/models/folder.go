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

// folder is the absolute path of a user's folder with a model.
type folder string

func (d folder) fill(ctx context.Context, w *work) error {
	if info, err := os.Stat(string(d)); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", d)
	}
	if err := d.complete(); err != nil {
		return err
	}
	for _, f := range layout {
		err := d.copy(ctx, w, f)
		if errors.Is(err, fs.ErrNotExist) && !f.need {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete fails if a file of the model is missing in the folder.
func (d folder) complete() error {
	has := func(file string) bool {
		info, err := os.Stat(d.path(file))
		return err == nil && info.Mode().IsRegular()
	}
	lacking := missing(has)
	if lacking == nil {
		return nil
	}
	err := fmt.Errorf("%s lacks %s", d, strings.Join(lacking, ", "))
	for _, other := range []string{"pytorch_model.bin", "onnx/model.onnx", "model.onnx", "onnx", "tf_model.h5"} {
		if !has(weightsFile) && exists(d.path(other)) {
			return fmt.Errorf("%w; it has %s, but the weights are read from safetensors only", err, other)
		}
	}
	return err
}

func (d folder) path(file string) string { return filepath.Join(string(d), filepath.FromSlash(file)) }

func (d folder) copy(ctx context.Context, w *work, f wanted) error {
	in, err := os.Open(d.path(f.name))
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	w.note(fmt.Sprintf("%s  %s", f.name, Bytes(info.Size())))
	return w.add(ctx, f.name, in, f.limit, File{})
}
