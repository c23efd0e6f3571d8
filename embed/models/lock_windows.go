package models

import (
	"errors"
	"os"
	"syscall"
)

// diskFull is ERROR_DISK_FULL and ERROR_HANDLE_DISK_FULL.
var diskFull = []error{syscall.Errno(112), syscall.Errno(39)}

const sharingViolation = syscall.Errno(32)

// tryLock takes the lock file at path for this process, unless somebody has it:
// then ok is false. It ends with the process at the latest. A file opened without
// sharing is the lock.
func tryLock(path string) (unlock func() error, ok bool, err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, false, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() error { return syscall.CloseHandle(h) }, true, nil
}

// syncDir does nothing: Windows keeps the names of a folder by itself.
func syncDir(string) error { return nil }
