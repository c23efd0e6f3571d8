package script

import (
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"
)

// Modules caches loaded modules. One goroutine at a time may use it.
type Modules struct {
	log    *slog.Logger
	loaded map[string]loaded // by path
}

// NewModules returns an empty cache. Modules print to log.
func NewModules(log *slog.Logger) *Modules { return &Modules{log, map[string]loaded{}} }

// loaded is a module and its files.
type loaded struct {
	*Program
	files map[string]stamp
}

// stamp changes with the file.
type stamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// Unedited returns the modules without a changed file.
func (m *Modules) Unedited() *Modules {
	same := maps.Clone(m.loaded)
	maps.DeleteFunc(same, func(_ string, one loaded) bool {
		for file, stamp := range one.files {
			if stampOf(file) != stamp {
				return true
			}
		}
		return false
	})
	return &Modules{m.log, same}
}

// Files returns the absolute paths of all files, sorted.
func (m *Modules) Files() []string {
	files := map[string]bool{}
	for _, one := range m.loaded {
		for file := range one.files {
			files[file] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}

// Program returns the module at path. It does not notice edits: see Unedited.
func (m *Modules) Program(path string) (*Program, error) {
	if known, ok := m.loaded[path]; ok {
		return known.Program, nil
	}
	program, err := Load(path, nil, func(line string) { m.log.Info("script", "print", line) })
	if err != nil {
		return nil, err
	}
	one := loaded{program, map[string]stamp{}}
	for _, file := range program.Files() {
		one.files[file] = stampOf(file)
	}
	m.loaded[path] = one
	return program, nil
}
