package page

import (
	"io/fs"
	"testing"

	"toolfinch/internal/must"
)

// maxPage is what all files of the page may have, in bytes.
const maxPage = 150_000

func TestThePageIsSmall(t *testing.T) {
	var all int64
	for _, files := range []fs.FS{staticFiles, templateFiles} {
		must.Do(t, fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				all += info.Size()
			}
			return err
		}))
	}
	if all == 0 || all > maxPage {
		t.Errorf("the stylesheet, scripts and templates have %d bytes; %d are the bound", all, maxPage)
	}
	t.Logf("%d bytes", all)
}
