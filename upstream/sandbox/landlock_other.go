//go:build !linux || !(amd64 || arm64)

package sandbox

import "errors"

func abi() int { return 0 }

func confine(Rules, string) error { return errors.ErrUnsupported }

func execute(string, []string, []string) error { return errors.ErrUnsupported }
