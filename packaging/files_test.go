package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each target of the image has what the program needs, whatever else is in it.
func TestTargetsOfTheImage(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages := regexp.MustCompile(`(?m)^FROM \S+ AS `).Split(string(text), -1)[1:]
	if len(stages) != 3 {
		t.Fatalf("the Dockerfile has %d stages: the test reads past them", len(stages))
	}
	instructions := func(stage string) (all []string) {
		for line := range strings.Lines(stage) {
			line = strings.TrimSpace(strings.Replace(line, "PATH=/usr/local/bin ", "", 1)) // other images have one
			if kind, _, ok := strings.Cut(line, " "); ok && kind == strings.ToUpper(kind) && kind != "FROM" && kind != "#" {
				all = append(all, line)
			}
		}
		return all
	}
	static, node := instructions(stages[1]), instructions(stages[2])
	if !slices.Equal(static, node) {
		t.Errorf("static has\n  %s\nnode has\n  %s", strings.Join(static, "\n  "), strings.Join(node, "\n  "))
	}
	if certificates := "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/"; !slices.Contains(static, certificates) {
		t.Errorf("no certificates in\n  %s", strings.Join(static, "\n  "))
	}
}
