//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
	kernel "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"toolfinch/internal/seccomp"
)

// abi returns the version of Landlock's interface, 0 without Landlock.
func abi() int {
	version, err := kernel.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}

// confine limits this process, and the programs that it starts, to the rules until it ends. Before Linux 6.12 the
// process can still send signals to other processes.
func confine(r Rules, program string) error {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	config := landlock.V6.BestEffort() // Check has asked for the version that the rules need
	files := []landlock.Rule{landlock.RWFiles(devices...).WithIoctlDev().IgnoreIfMissing()}
	for _, path := range r.readable(program) {
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
			if port != r.OwnPort {
				ports = append(ports, landlock.ConnectTCP(uint16(port)))
			}
		}
		if err := config.RestrictNet(ports...); err != nil {
			return err
		}
	}
	if err := config.RestrictScoped(); err != nil {
		return err
	}
	if r.Ports == nil && r.OwnPort != 0 {
		if err := closePort(r.OwnPort); err != nil {
			return fmt.Errorf("own port: %w", err)
		}
	}
	return seccomp.Confine(systemCalls(r), seccomp.Allow)
}

// closePort forbids this thread, which becomes the program, to connect to one port. Landlock can only allow ports, one
// by one, so this takes a fifth of a second and 4 MB of the kernel's memory.
func closePort(closed int) error {
	rules, err := kernel.LandlockCreateRuleset(&kernel.RulesetAttr{HandledAccessNet: kernel.AccessNetConnectTCP}, 0)
	if err != nil {
		return err
	}
	defer unix.Close(rules)
	for port := 1; port <= math.MaxUint16; port++ {
		if port == closed {
			continue
		}
		if err := kernel.LandlockAddNetPortRule(rules, &kernel.NetPortAttr{AllowedAccess: kernel.AccessNetConnectTCP, Port: uint64(port)}, 0); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return kernel.LandlockRestrictSelf(rules, 0)
}

// kept are the capabilities with which root accesses the files of the rules, and becomes another user. Other
// capabilities bypass the rules: with CAP_PERFMON a process reads the environment of every process.
var kept = []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SETGID, unix.CAP_SETUID}

// dropCapabilities drops all capabilities but kept for the program that this thread becomes: from the bounding set,
// which root's programs get, and from the inheritable and ambient sets.
func dropCapabilities() error {
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capability, 0, 0, 0)
		if err != nil || held == 0 || slices.Contains(kept, capability) { // an error means that the kernel does not know the capability
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && os.Geteuid() == 0 {
			return err
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // fails before Linux 4.3, which has no ambient set
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
