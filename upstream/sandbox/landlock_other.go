//go:build !linux

package sandbox

import "errors"

func abi() int { return 0 }

func confine(Rules) error { return errors.ErrUnsupported }

func execute(string, []string, []string) error { return errors.ErrUnsupported }
