package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// A log file becomes the older one at this size, or when its first line is this old.
const (
	maxLog    = 10 << 20 // bytes
	maxLogAge = 30 * 24 * time.Hour
)

// logFile returns the log of a toolfinch in the background. The older part has the suffix .1.
func logFile(dataDir string) string { return filepath.Join(dataDir, "toolfinch.log") }

// rotated is a log file with a bounded size. Several processes may write to it.
type rotated struct {
	path string

	mu   sync.Mutex // guards the fields below; held over writes
	file *os.File
	size int64
	ends time.Time // when it is too old
}

// lineTime matches the time of a line, in text and JSON.
var lineTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`)

func openRotated(path string) (*rotated, error) {
	r := &rotated{path: path}
	return r, r.open()
}

func (r *rotated) open() error {
	file, err := os.OpenFile(r.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	first := make([]byte, 100)
	n, _ := file.ReadAt(first, 0) // a line without a time is new
	begun, err := time.Parse(time.RFC3339, lineTime.FindString(string(first[:n])))
	if err != nil {
		begun = time.Now()
	}
	r.file, r.size, r.ends = file, info.Size(), begun.Add(maxLogAge)
	return nil
}

// Write appends whole lines.
func (r *rotated) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil { // it could not be opened after a rotation
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	if r.size > 0 && (r.size+int64(len(p)) > maxLog || time.Now().After(r.ends)) {
		if err := r.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	return n, err
}

// rotate moves the file away, unless another process has just done so.
func (r *rotated) rotate() error {
	mine, err := r.file.Stat()
	if err != nil {
		return err
	}
	err = r.file.Close() // before the rename, which Windows refuses for an open file
	r.file = nil
	if err != nil {
		return err
	}
	if now, err := os.Stat(r.path); err == nil && os.SameFile(mine, now) {
		if err := os.Rename(r.path, r.path+".1"); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.open()
}

// Close closes the file.
func (r *rotated) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
