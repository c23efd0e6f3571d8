package proxy_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/view"
)

// scriptProcesses counts the processes that this one keeps for scripts of models.
func scriptProcesses() (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	parent := fmt.Appendf(nil, "\nPPid:\t%d\n", os.Getpid())
	for _, file := range files {
		line, _ := os.ReadFile(file)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if bytes.Contains(line, []byte("run-script")) && bytes.Contains(status, parent) {
			n++
		}
	}
	return n
}

func TestAProcessWaitsForScriptsOnlyWhereAViewTakesThem(t *testing.T) {
	scripts := []*script{shop(t, "shop", "coat")}
	without, with := everything("v", view.ExposureDirect), everything("v", view.ExposureDirect)
	with.RunScript = &view.ScriptLimits{}
	p, _ := openViews(t, "", configOf(t, scripts, without))
	if n := scriptProcesses(); n != 0 {
		t.Errorf("%d processes, and no view takes scripts", n)
	}
	for _, settings := range []view.Settings{with, without, with} {
		must.Do(t, p.Reload(t.Context(), configOf(t, scripts, settings)))
		want := 0
		if settings.RunScript != nil {
			want = 1
		}
		await.True(t, func() bool { return scriptProcesses() == want })
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if n := scriptProcesses(); n != 0 {
		t.Errorf("%d processes are left after Close", n)
	}
}
