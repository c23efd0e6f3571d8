//go:build unix

package models

import (
	"errors"
	"os"
	"syscall"
)

// diskFull is what a full disk, or a used-up quota, says.
var diskFull = []error{syscall.ENOSPC, syscall.EDQUOT}

// tryLock takes the lock file at path for this process, unless somebody has it:
// then ok is false. It ends with the process at the latest.
func tryLock(path string) (unlock func() error, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return f.Close, true, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, f.Close()
	}
	return nil, false, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
