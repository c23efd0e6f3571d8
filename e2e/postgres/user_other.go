//go:build !linux

package postgres

import (
	"errors"
	"syscall"
)

func unprivileged(string) (*syscall.SysProcAttr, error) { return nil, errors.ErrUnsupported }
