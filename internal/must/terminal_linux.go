package must

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal returns the two ends of a pseudo-terminal of 100 columns: what a program has,
// and what a person sees of it.
func Terminal(t testing.TB) (inside, outside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals:", err)
	}
	t.Cleanup(func() { outside.Close() })
	fd := int(outside.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100})
	}
	if err == nil {
		inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("there are no pseudo-terminals:", err)
	}
	t.Cleanup(func() { inside.Close() })
	return inside, outside
}
