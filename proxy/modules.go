package proxy

import (
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"toolfinch/script"
)

// modules are the Starlark modules of the views, each loaded once. One goroutine at
// a time uses them.
type modules struct {
	log    *slog.Logger
	loaded map[string]module // by path
}

// module is a loaded module and the files it was made of.
type module struct {
	*script.Program
	files map[string]stamp
}

// stamp changes when a file does.
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

// unedited are the modules of which no file has changed.
func (m *modules) unedited() *modules {
	same := maps.Clone(m.loaded)
	maps.DeleteFunc(same, func(_ string, one module) bool {
		for file, stamp := range one.files {
			if stampOf(file) != stamp {
				return true
			}
		}
		return false
	})
	return &modules{m.log, same}
}

// files are the absolute paths of all files, sorted.
func (m *modules) files() []string {
	files := map[string]bool{}
	for _, one := range m.loaded {
		for file := range one.files {
			files[file] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}

// program returns the module at path. An edited file is for Reload to take: news of
// an upstream must not bring half an edit.
func (m *modules) program(path string) (*script.Program, error) {
	if known, ok := m.loaded[path]; ok {
		return known.Program, nil
	}
	loaded, err := script.Load(path, nil, func(line string) { m.log.Info("script", "print", line) })
	if err != nil {
		return nil, err
	}
	one := module{loaded, map[string]stamp{}}
	for _, file := range loaded.Files() {
		one.files[file] = stampOf(file)
	}
	m.loaded[path] = one
	return loaded, nil
}
