package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	. "toolfinch/store/storetest"
)

// A test process that is killed leaves no server and no folder, even a server that is paused. The process is this
// test itself, run again.
func TestAKilledTestLeavesNoServer(t *testing.T) {
	if os.Getenv("TOOLFINCH_TEST_HANG") != "" {
		cluster := postgres.New(t)
		at, err := url.Parse(cluster.Database(t))
		Must(t, err)
		cluster.Pause(t) // stopped processes must end, too
		fmt.Println(at.Query().Get("host"))
		select {}
	}
	postgres.Start(t) // or the test is skipped
	cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledTestLeavesNoServer$")
	cmd.Env = append(os.Environ(), "TOOLFINCH_TEST_HANG=1")
	out, err := cmd.StdoutPipe()
	Must(t, err, cmd.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it says nothing")
	}
	dir := lines.Text()
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	Must(t, cmd.Process.Kill())
	_ = cmd.Wait()                                                                               // it was killed
	await.True(t, func() bool { _, err := os.Stat(dir); return errors.Is(err, fs.ErrNotExist) }) // which goes after the server
}
