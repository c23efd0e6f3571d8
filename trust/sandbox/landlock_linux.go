package sandbox

import (
	"os"

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

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func execute(path string, args, env []string) error { return unix.Exec(path, args, env) }
