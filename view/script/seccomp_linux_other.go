//go:build linux && !amd64 && !arm64

package script

import "toolfinch/internal/seccomp"

// systemCalls returns no rules: seccomp.Confine has no filter for this architecture.
func systemCalls() []seccomp.Rule { return nil }
