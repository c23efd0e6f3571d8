//go:build packaging

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra/doc"
)

// With the tag packaging, `toolfinch generate FOLDER` writes the man pages and shell completions for
// packages. The released program lacks this code.
func init() {
	if len(os.Args) != 3 || os.Args[1] != "generate" {
		return
	}
	if err := generate(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "toolfinch generate:", err)
		os.Exit(exitFailed)
	}
	os.Exit(exitOK)
}

func generate(folder string) error {
	man := filepath.Join(folder, "man")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	root := newRoot("")
	root.DisableAutoGenTag = true
	day, err := time.Parse(time.RFC3339, built().Date)
	if err != nil {
		day = time.Now() // the build has no commit
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "toolfinch", Manual: "toolfinch", Date: &day}, man); err != nil {
		return err
	}
	shells := filepath.Join(folder, "completions")
	if err := os.MkdirAll(shells, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(string) error{
		"toolfinch.bash": func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		"_toolfinch":     root.GenZshCompletionFile,
		"toolfinch.fish": func(file string) error { return root.GenFishCompletionFile(file, true) },
		"toolfinch.ps1":  root.GenPowerShellCompletionFileWithDesc,
	} {
		if err := write(filepath.Join(shells, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
