//go:build unix

package skills

import (
	"syscall"
	"testing"

	"toolfinch/internal/must"
)

func makeFIFO(t *testing.T, path string) { must.Do(t, syscall.Mkfifo(path, 0o600)) }
