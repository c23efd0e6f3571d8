// Package seccomp assembles a filter of system calls from rules, and applies it to this process. It does not decide
// which calls are refused.
package seccomp

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rule is the action for calls whose arguments pass all tests.
type Rule struct {
	Calls []uint32
	If    []Test
	Then  Action
}

// Action says how the kernel treats a call.
type Action uint32

// Allow and Kill are the actions beside Fail.
const (
	Allow Action = unix.SECCOMP_RET_ALLOW
	Kill  Action = unix.SECCOMP_RET_KILL_PROCESS
)

// Fail returns the action that makes a call fail with an error. Error 0 makes it succeed and do nothing.
func Fail(errno unix.Errno) Action { return Action(unix.SECCOMP_RET_ERRNO | uint32(errno)) }

// Test compares the low 32 bits of an argument. The kernel ignores the high bits of an int.
type Test struct {
	Argument    uint32
	Mask, Value uint32 // the compared bits, and their required value
	Not         bool   // the bits must differ from Value
}

// Is passes an argument with this value.
func Is(argument, value uint32) Test { return Test{argument, ^uint32(0), value, false} }

// IsNot passes an argument with another value.
func IsNot(argument, value uint32) Test { return Test{argument, ^uint32(0), value, true} }

// Has passes an argument with at least one of these bits.
func Has(argument, bits uint32) Test { return Test{argument, bits, 0, true} }

// Supported reports whether filters can be assembled for this architecture.
func Supported() bool { return architectures[runtime.GOARCH] != 0 }

var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Confine applies the rules to this process, and to the programs that it starts, until they end. The first rule that a
// call matches decides. otherwise is the action for calls that match no rule.
func Confine(rules []Rule, otherwise Action) error {
	if !Supported() {
		return errors.ErrUnsupported
	}
	filter := assemble(architectures[runtime.GOARCH], rules, otherwise)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // prctl changes one thread; seccomp with TSYNC then changes all threads
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}

// Offsets in struct seccomp_data, the input of a filter.
const (
	offsetNumber    = 0
	offsetArch      = 4
	offsetArguments = 16
)

// x32 is the bit that marks calls of the x32 ABI, which repeats all calls under other numbers.
const x32 = 0x40000000

// assemble returns the filter. A call by a 32-bit program ends the process, because its number means another call.
func assemble(arch uint32, rules []Rule, otherwise Action) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	end := func(action Action) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(action)}
	}
	filter := []unix.SockFilter{
		load(offsetArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: arch, Jt: 1},
		end(Kill),
		load(offsetNumber),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32, Jf: 1},
		end(Fail(unix.ENOSYS)),
	}
	for _, rule := range rules {
		var tests []unix.SockFilter
		for i, test := range rule.If {
			// A failed test skips the later tests, three instructions each, and the action.
			failed := uint8(3*(len(rule.If)-1-i) + 1)
			compare := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: test.Value, Jf: failed}
			if test.Not {
				compare.Jt, compare.Jf = failed, 0
			}
			tests = append(tests, load(offsetArguments+8*test.Argument), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: test.Mask}, compare)
		}
		for _, number := range rule.Calls {
			skipped := uint8(len(tests) + 1)
			if len(tests) > 0 {
				skipped++ // the instruction after the action, which loads the number again
			}
			filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: skipped})
			filter = append(append(filter, tests...), end(rule.Then))
			if len(tests) > 0 {
				filter = append(filter, load(offsetNumber))
			}
		}
	}
	return append(filter, end(otherwise))
}
