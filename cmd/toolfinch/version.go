package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Set by the linker for builds without version control, as from an archive: -ldflags "-X
// main.version=v1.2.3 -X main.commit=0123abcd -X main.date=2026-11-23T14:35:29Z".
var version, commit, date string

type build struct {
	Version  string `json:"version"`            // version of the release, or Go's name for the commit, or "dev"
	Commit   string `json:"commit,omitempty"`   // whole hash
	Date     string `json:"date,omitempty"`     // time of the commit, in RFC 3339
	Modified bool   `json:"modified,omitempty"` // some files differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"` // such as linux/amd64
}

func built() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return buildOf(info, version, commit, date)
}

// buildOf reads the build information. Values from the linker take precedence.
func buildOf(info *debug.BuildInfo, version, commit, date string) build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	module := info.Main.Version
	if module == "(devel)" { // a build without version control
		module = ""
	}
	return build{
		Version:  cmp.Or(version, module, "dev"),
		Commit:   cmp.Or(commit, settings["vcs.revision"]),
		Date:     cmp.Or(date, settings["vcs.time"]),
		Modified: commit == "" && settings["vcs.modified"] == "true",
		Go:       info.GoVersion,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String returns the output of `toolfinch version`, without the program's name.
func (id build) String() string {
	var known []string
	if id.Commit != "" {
		text := "commit " + id.Commit[:min(len(id.Commit), 12)]
		if id.Modified {
			text += " with changes"
		}
		known = append(known, text)
	}
	if id.Date != "" {
		known = append(known, id.Date)
	}
	known = append(known, id.Go, id.Platform)
	return id.Version + " (" + strings.Join(known, ", ") + ")"
}

func newVersion() *cobra.Command {
	return withJSON(&cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  toolfinch version\n  toolfinch version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON(cmd) {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(built())
			}
			printVersion(cmd)
			return nil
		},
	}, "print JSON")
}

func printVersion(cmd *cobra.Command) { fmt.Fprintln(cmd.OutOrStdout(), "toolfinch", built()) }
