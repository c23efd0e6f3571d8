package proxy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/tool"
	"toolfinch/view"
)

// servedWithin is how long an edit waits until the edited configuration is served.
const servedWithin = 3 * time.Second

// edit edits the configuration's file and, if that changed it, waits until served says that the edit is served.
func (h paged) edit(ctx context.Context, write func(path string) (changed bool, err error), served func(*configs.Config) bool) error {
	path := h.now.Load().Config.Path
	if path == "" {
		return errors.New("this configuration is in no file")
	}
	replaced := h.now.Load().replaced
	changed, err := write(path)
	if err != nil || !changed {
		return err
	}
	patience := time.NewTimer(leeway.Of(servedWithin))
	defer patience.Stop()
	for !served(h.now.Load().Config) {
		select {
		case <-replaced:
			replaced = h.now.Load().replaced
		case <-patience.C:
			return fmt.Errorf("%s is written, and not served yet: the log says why", filepath.Base(path))
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Switch switches a server on or off in the configuration's file.
func (h paged) Switch(ctx context.Context, name string, on bool) error {
	return h.edit(ctx, func(path string) (bool, error) { return configs.SetEnabled(path, name, on) }, func(c *configs.Config) bool {
		return slices.Contains(c.Disabled, name) != on
	})
}

// Hide hides a tool from all views in the configuration's file, or shows it again.
func (h paged) Hide(ctx context.Context, id tool.ID, hidden bool) error {
	return h.edit(ctx, func(path string) (bool, error) { return configs.SetHidden(path, id.Server, id.Name, hidden) }, func(c *configs.Config) bool {
		return view.Hidden(c.Tools, id) == hidden
	})
}

// AddWords adds words for search to the description of a tool in the configuration's file, and returns the new ones.
func (h paged) AddWords(ctx context.Context, id tool.ID, words []string) (added []string, err error) {
	err = h.edit(ctx, func(path string) (bool, error) {
		added, err = configs.AddWords(path, id.Server, id.Name, words)
		return len(added) > 0, err
	}, func(c *configs.Config) bool {
		has := configs.WordsOf(c.Tools, id.Server, id.Name)
		return !slices.ContainsFunc(added, func(word string) bool { return !slices.Contains(has, word) })
	})
	return added, err
}

// RemoveWords removes words that AddWords has added.
func (h paged) RemoveWords(ctx context.Context, id tool.ID, words []string) error {
	return h.edit(ctx, func(path string) (bool, error) {
		return true, configs.RemoveWords(path, id.Server, id.Name, words)
	}, func(c *configs.Config) bool {
		has := configs.WordsOf(c.Tools, id.Server, id.Name)
		return !slices.ContainsFunc(words, func(word string) bool { return slices.Contains(has, word) })
	})
}

// Words returns the words that AddWords has added to a tool's description.
func (h paged) Words(id tool.ID) []string {
	return configs.WordsOf(h.now.Load().Config.Tools, id.Server, id.Name)
}
