package sandbox

import (
	"fmt"
	"os"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
	kernel "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// abi is the version of Landlock's interface, 0 without.
func abi() int {
	version, err := kernel.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}

// confine holds this process to the rules from now on, and what it starts. Signals to other
// processes and their abstract sockets are held back where the kernel can.
func confine(r Rules) error {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	config := landlock.V6.BestEffort() // what is needed was checked
	files := []landlock.Rule{landlock.RWFiles(devices...).WithIoctlDev().IgnoreIfMissing()}
	for _, path := range r.Read {
		if isFolder(path) {
			files = append(files, landlock.RODirs(path))
		} else {
			files = append(files, landlock.ROFiles(path).IgnoreIfMissing())
		}
	}
	for _, path := range r.Write {
		if isFolder(path) {
			files = append(files, landlock.RWDirs(path).WithRefer())
		} else {
			files = append(files, landlock.RWFiles(path))
		}
	}
	if err := config.RestrictPaths(files...); err != nil {
		return err
	}
	if r.Ports != nil {
		var ports []landlock.Rule
		for _, port := range r.Ports {
			ports = append(ports, landlock.ConnectTCP(uint16(port)))
		}
		if err := config.RestrictNet(ports...); err != nil {
			return err
		}
	}
	return config.RestrictScoped()
}

// kept are the capabilities of root that concern files, which the rules are about. Others reach around them:
// with CAP_PERFMON a process reads the environment of all.
var kept = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SETGID, unix.CAP_SETUID}

// dropCapabilities takes the others from the program that this thread becomes: root's, which are those of the bounding
// set, and what a thread hands on by itself.
func dropCapabilities() error {
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capability, 0, 0, 0)
		if err != nil || held == 0 || slices.Contains(kept, capability) { // the kernel may know fewer
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && os.Geteuid() == 0 {
			return err
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // Linux before 4.3 has none
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	return unix.Capset(&header, &sets[0])
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func execute(path string, args, env []string) error { return unix.Exec(path, args, env) }
