package script

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"toolfinch/internal/await"
)

// shared runs the scripts of tests that are not about processes.
var shared *Sandbox

func TestMain(m *testing.M) {
	shared = NewSandbox(slog.New(slog.DiscardHandler))
	shared.Ready(true)
	code := m.Run()
	shared.Close()
	if len(shared.all) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", len(shared.all))
		code = 1
	}
	os.Exit(code)
}

// run runs a script with the fake host.
func runScript(source string, limits Limits, log func(string)) (json.RawMessage, error) {
	limits.Time = cmp.Or(limits.Time, await.Bound)
	return shared.Run(context.Background(), source, info, &fakeHost{}, limits, log)
}

// runHere is runScript without a process: for what is the same in one.
func runHere(source string, limits Limits, log func(string)) (json.RawMessage, error) {
	limits.Time = cmp.Or(limits.Time, await.Bound)
	limits = limits.orDefaults()
	if log == nil {
		log = func(string) {}
	}
	r := newRun(context.Background(), scriptName, info, limits, log)
	defer r.end()
	r.script, r.door = true, newHostDoor(&fakeHost{}, limits)
	return r.source(source)
}
