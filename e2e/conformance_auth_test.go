//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/must"
)

// The suite's scenarios for OAuth are played through toolfinch alone: there is no
// direct side to compare with, so every check must pass.

// notLoggedIn are scenarios of extensions that toolfinch has no part of.
var notLoggedIn = []string{
	"auth/client-credentials-jwt", "auth/cross-app-access-complete-flow", "auth/dpop", "auth/dpop-nonce", "auth/enterprise-managed-authorization", "auth/wif-jwt-bearer",
}

// listedAuth finds a scenario and its versions in the suite's list.
var listedAuth = regexp.MustCompile(`(?m)^  - (auth/\S+) \[(.*)\]$`)

func TestConformanceAuth(t *testing.T) {
	t.Parallel()
	c := newConformance(t)
	player := c.build(t, "everything/player")
	command := fmt.Sprintf("%s -home %s -through %s", player, c.house.home, program(t))
	ctx := t.Context()
	stable, next := suites[0], suites[2]
	type run struct{ scenario, suite, version string }
	var runs []run
	for _, m := range listedAuth.FindAllStringSubmatch(c.list(t, stable), -1) {
		runs = append(runs, run{m[1], stable.module, ""})
	}
	for _, m := range listedAuth.FindAllStringSubmatch(c.list(t, next), -1) {
		versions := strings.Split(m[2], ",")
		for _, version := range []string{"2025-03-26", legacyVersion, modernVersion} {
			if slices.Contains(versions, version) || version == modernVersion && slices.Contains(versions, "extension") {
				runs = append(runs, run{m[1], next.module, version})
			}
		}
	}
	runs = slices.DeleteFunc(runs, func(r run) bool { return slices.Contains(notLoggedIn, r.scenario) })
	if !long {
		runs = slices.DeleteFunc(runs, func(r run) bool { return !strings.HasSuffix(r.scenario, "scope-step-up") })
	}
	if len(runs) == 0 {
		t.Fatal("the suites list no scenarios for OAuth")
	}
	var (
		mu      sync.Mutex // guards cells
		cells   = map[run]string{}
		running errgroup.Group
	)
	running.SetLimit(4)
	for _, r := range runs {
		running.Go(func() error {
			s := next
			args := []string{"client", "--command", command, "--scenario", r.scenario, "--timeout", "180000"}
			if r.suite == stable.module {
				s = stable
			} else {
				args = append(args, "--spec-version", r.version, "--force")
			}
			found := results{}
			if err := c.run(ctx, s, found, args...); err != nil {
				return fmt.Errorf("%s: %w", r.scenario, err)
			}
			for _, checks := range found {
				for id, status := range checks {
					if status == "FAILURE" || status == "WARNING" {
						t.Errorf("%s, %s %s: %s: %s", r.scenario, r.suite, r.version, id, status)
					}
				}
				mu.Lock()
				cells[r] = verdict(checks)
				mu.Unlock()
			}
			return nil
		})
	}
	must.Do(t, running.Wait())
	var table strings.Builder
	table.WriteString("| 0.1.16 | 0.2.0-alpha.12, 2025-11-25 | 0.2.0-alpha.12, 2026-07-28 | scenarios |\n| --- | --- | --- | --- |\n")
	var judged []scenarioVerdicts
	names := map[string]bool{}
	for _, r := range runs {
		names[r.scenario] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		legacy := cells[run{name, next.module, legacyVersion}]
		if legacy == "" {
			legacy = cells[run{name, next.module, "2025-03-26"}]
		}
		judged = append(judged, scenarioVerdicts{strings.TrimPrefix(name, "auth/"), []string{cells[run{name, stable.module, ""}], legacy, cells[run{name, next.module, modernVersion}]}})
	}
	table.WriteString(rowsByVerdict("", judged))
	writtenDown(t, "auth", table.String())
}
