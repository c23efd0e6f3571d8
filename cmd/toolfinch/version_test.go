package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// What each way to build leaves in the program, as Go 1.26 writes it.
func TestIdentity(t *testing.T) {
	const revision, day = "0123456789abcdef0123456789abcdef01234567", "2026-11-23T14:35:29Z"
	const end = ", go1.26.8, " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	const bare = " (go1.26.8, " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}, {Key: "vcs.time", Value: day}, {Key: "vcs.modified", Value: modified}}
	}
	for _, test := range []struct {
		name                  string
		module                string
		settings              []debug.BuildSetting
		version, commit, date string // of the linker
		want                  string
	}{
		{name: "go build of a tag", module: "v1.2.3", settings: vcs("false"), want: "v1.2.3 (commit 0123456789ab, " + day + end},
		{name: "go build of a commit with changes", module: "v1.2.4-0.20261123143529-0123456789ab+dirty", settings: vcs("true"),
			want: "v1.2.4-0.20261123143529-0123456789ab+dirty (commit 0123456789ab with changes, " + day + end},
		{name: "go install of a version", module: "v1.2.3", want: "v1.2.3" + bare},
		{name: "go build -buildvcs=false, go run, go test", module: "(devel)", want: "dev" + bare},
		{name: "a build from an archive", module: "(devel)", version: "v1.2.3", commit: "0123abcd", date: day, want: "v1.2.3 (commit 0123abcd, " + day + end},
		{name: "the linker goes first", module: "v1.2.4-0.20261123143529-0123456789ab+dirty", settings: vcs("true"), version: "v1.2.3", commit: revision, want: "v1.2.3 (commit 0123456789ab, " + day + end},
	} {
		t.Run(test.name, func(t *testing.T) {
			info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: test.module}, Settings: test.settings}
			if got := buildOf(info, test.version, test.commit, test.date).String(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
