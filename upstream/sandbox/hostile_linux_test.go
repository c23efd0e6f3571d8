//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolfinch/internal/must"
)

// hostileVariable makes this test binary the hostile program, which tries the attacks that it names on a prey.
const hostileVariable = "SANDBOX_TEST_ATTACK"

// prey is what the hostile program attacks. Its fields reach the program as arguments.
type prey struct {
	file   string // of the same user, outside of what may be written
	stream string // a socket that listens
	dgram  string // a socket that takes datagrams
	port   int    // of TCP, that listens
	pid    int    // of a process of the same user
}

func (p prey) args() []string {
	return []string{"hostile", p.file, p.stream, p.dgram, strconv.Itoa(p.port), strconv.Itoa(p.pid)}
}

func preyOf(args []string) prey {
	port, _ := strconv.Atoi(args[4])
	pid, _ := strconv.Atoi(args[5])
	return prey{args[1], args[2], args[3], port, pid}
}

func init() {
	names := os.Getenv(hostileVariable)
	if names == "" || len(os.Args) != 6 || os.Args[0] != "hostile" {
		return
	}
	for name := range strings.SplitSeq(names, ";") {
		for _, a := range attacks {
			if a.name == name {
				fmt.Printf("%s: %s\n", name, resultOf(a.try(preyOf(os.Args))))
			}
		}
	}
	os.Exit(0)
}

// resultOf names an error as the kernel does.
func resultOf(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// attacked runs attacks in one process, and returns the result of each by its name.
func attacked(t *testing.T, s Settings, as *syscall.Credential, self string, p prey, names ...string) map[string]string {
	t.Helper()
	results := map[string]string{}
	for line := range strings.Lines(run(t, s, as, self, p.args(), []string{hostileVariable + "=" + strings.Join(names, ";")})) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
		results[name] = result
	}
	return results
}

// attack is one way out of the sandbox.
type attack struct {
	name string
	try  func(prey) error
	want string // the error in the sandbox; "" for EPERM
	free string // the same error without a sandbox, and why
}

func (a attack) wanted() string { return cmp.Or(a.want, "EPERM") }

func (a attack) concernsPort() bool { return strings.Contains(a.name, "our port") }

// call makes a system call whose arguments are numbers or point to nothing.
func call(number uintptr, args ...uintptr) error {
	args = append(args, make([]uintptr, 6-len(args))...)
	if _, _, errno := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
		return errno
	}
	return nil
}

func socket(family, kind, protocol int) error {
	_, err := unix.Socket(family, kind, protocol)
	return err
}

// loopback is an address of this machine.
func loopback(port int) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

func connect(port, kind, protocol int) error {
	fd, err := unix.Socket(unix.AF_INET, kind, protocol)
	if err != nil {
		return err
	}
	return unix.Connect(fd, loopback(port))
}

// pairOf returns a datagram socket that no call to socket has made.
func pairOf(kind int) (int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	return fds[0], err
}

const others = unsafe.Sizeof(uintptr(0)) // any size of a structure

var attacks = []attack{
	{name: "connects to a socket that is a file", try: func(p prey) error { _, err := net.Dial("unix", p.stream); return err }},
	{name: "connects to an abstract socket", try: func(p prey) error { _, err := net.Dial("unix", "@"+p.stream); return err }},
	{name: "sends a datagram to a socket", try: func(p prey) error { _, err := net.Dial("unixgram", p.dgram); return err }},
	{name: "sends a datagram from a pair", try: func(p prey) error {
		fd, err := pairOf(unix.SOCK_DGRAM)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: p.dgram})
	}},
	{name: "sends a datagram from a raw pair", try: func(p prey) error {
		fd, err := pairOf(unix.SOCK_RAW)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: p.dgram})
	}},
	{name: "connects a pair to another socket", try: func(p prey) error {
		fd, err := pairOf(unix.SOCK_STREAM)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: p.stream})
	}, want: "EISCONN", free: "a pair is connected already"},

	{name: "connects to our port", try: func(p prey) error { return connect(p.port, unix.SOCK_STREAM, 0) }, want: "EACCES"},
	{name: "connects to our port from another family", try: func(p prey) error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		address := unix.SockaddrInet6{Port: p.port, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
		return unix.Connect(fd, &address)
	}, want: "EACCES"},
	{name: "connects to our port over MPTCP", try: func(p prey) error { return connect(p.port, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) }},
	{name: "connects to our port over SMC", try: func(p prey) error { return socket(unix.AF_SMC, unix.SOCK_STREAM, 0) }},
	{name: "opens our port with data", try: func(p prey) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, loopback(p.port))
	}},
	{name: "opens our port with a message", try: func(p prey) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		_, err = unix.SendmsgN(fd, []byte("x"), nil, loopback(p.port), unix.MSG_FASTOPEN)
		return err
	}},
	{name: "opens our port with messages", try: func(prey) error { return call(unix.SYS_SENDMMSG, 0, 0, 0, unix.MSG_FASTOPEN) }},
	{name: "opens our port with a late connection", try: func(p prey) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1); err != nil {
			return err
		}
		return unix.Connect(fd, loopback(p.port))
	}, want: "EACCES"},
	{name: "connects to our port from a child that has left its session", try: func(p prey) error {
		again := exec.Command("/proc/self/exe")
		again.Args, again.Env = p.args(), []string{hostileVariable + "=connects to our port"}
		again.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := again.Output()
		if strings.Contains(string(out), "EACCES") {
			return unix.EACCES
		}
		return err
	}, want: "EACCES"},

	{name: "listens and connects to itself", try: func(prey) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // Go asks for MPTCP first
		if err != nil {
			return err
		}
		_, err = net.Dial("tcp", listener.Addr().String())
		return err
	}, want: "done", free: "it is no attack: servers do so"},

	{name: "asks the kernel for the sockets of others", try: func(prey) error { return socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG) }},
	{name: "talks to virtual machines", try: func(prey) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
	{name: "reads packets", try: func(prey) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) }},
	{name: "sends raw packets", try: func(prey) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
	{name: "uses ciphers of the kernel", try: func(prey) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }},

	{name: "traces a process", try: func(p prey) error { return unix.PtraceAttach(p.pid) }},
	{name: "reads a process's memory", try: func(p prey) error { return call(unix.SYS_PROCESS_VM_READV, uintptr(p.pid)) }},
	{name: "writes a process's memory", try: func(p prey) error { return call(unix.SYS_PROCESS_VM_WRITEV, uintptr(p.pid)) }},
	{name: "takes a process's files", try: func(p prey) error {
		fd, err := unix.PidfdOpen(p.pid, 0)
		if err != nil {
			return err
		}
		return call(unix.SYS_PIDFD_GETFD, uintptr(fd), 0, 0)
	}},
	{name: "compares processes", try: func(p prey) error { return call(unix.SYS_KCMP, uintptr(p.pid), uintptr(p.pid)) }},
	{name: "signals a process", try: func(p prey) error { return unix.Kill(p.pid, 0) }},
	{name: "lowers a process's limits", try: func(p prey) error {
		return unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}, nil)
	}},
	{name: "binds a process to a processor", try: func(p prey) error {
		var set unix.CPUSet
		set.Set(0)
		return unix.SchedSetaffinity(p.pid, &set)
	}},
	{name: "lowers a process's priority", try: func(p prey) error { return unix.Setpriority(unix.PRIO_PROCESS, p.pid, 19) }},
	{name: "lowers the priority of a user", try: func(prey) error { return unix.Setpriority(unix.PRIO_USER, 4242, 19) }},
	{name: "lowers the priority of a group", try: func(prey) error {
		if err := unix.Setpgid(0, 0); err != nil { // which is its own: the test is not to be slowed down
			return err
		}
		return unix.Setpriority(unix.PRIO_PGRP, 0, 19)
	}},
	{name: "lowers the disk's priority of a user", try: func(prey) error { return call(unix.SYS_IOPRIO_SET, 3, 0, 0xffff) }},
	{name: "schedules a process", try: func(p prey) error { return call(unix.SYS_SCHED_SETSCHEDULER, uintptr(p.pid)) }},

	{name: "shares memory", try: func(prey) error {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
		if err == nil {
			_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		return err
	}},
	{name: "reads shared memory", try: func(prey) error { return call(unix.SYS_SHMAT, others) }},
	{name: "makes a queue", try: func(prey) error {
		id, _, errno := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600, 0)
		if errno != 0 {
			return errno
		}
		return call(unix.SYS_MSGCTL, id, unix.IPC_RMID)
	}},
	{name: "sends to a queue", try: func(prey) error { return call(unix.SYS_MSGSND, others) }},
	{name: "reads a queue", try: func(prey) error { return call(unix.SYS_MSGRCV, others) }},
	{name: "makes a semaphore", try: func(prey) error {
		id, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, 0o600)
		if errno != 0 {
			return errno
		}
		return call(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID)
	}},
	{name: "changes a semaphore", try: func(prey) error { return call(unix.SYS_SEMTIMEDOP, others) }},
	{name: "opens a POSIX queue", try: func(prey) error { return call(unix.SYS_MQ_OPEN) }},
	{name: "removes a POSIX queue", try: func(prey) error { return call(unix.SYS_MQ_UNLINK) }},

	{name: "makes a user namespace", try: func(prey) error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{name: "makes a network namespace", try: func(prey) error { return unix.Unshare(unix.CLONE_NEWNET) }},
	{name: "starts a child in a namespace", try: func(prey) error {
		return call(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_THREAD)
	}},
	{name: "starts a child by clone3", try: func(prey) error { return call(unix.SYS_CLONE3) }, want: "ENOSYS"},
	{name: "enters a namespace", try: func(prey) error { return unix.Setns(0, 0) }},
	{name: "mounts", try: func(prey) error { return unix.Mount("none", "/tmp", "no-such", 0, "") }},
	{name: "mounts the newer way", try: func(prey) error { _, err := unix.Fsopen("no-such", 0); return err }},
	{name: "changes its root", try: func(prey) error { return unix.Chroot("/no-such") }},
	{name: "opens a file by its handle", try: func(prey) error { return call(unix.SYS_OPEN_BY_HANDLE_AT) }},
	{name: "makes requests of io_uring", try: func(prey) error { return call(unix.SYS_IO_URING_SETUP, 1) }},
	{name: "loads a program into the kernel", try: func(prey) error { return call(unix.SYS_BPF) }},
	{name: "counts events", try: func(prey) error { return call(unix.SYS_PERF_EVENT_OPEN) }},
	{name: "handles page faults", try: func(prey) error { return call(unix.SYS_USERFAULTFD, others) }},
	{name: "reads the user's keys", try: func(prey) error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false); return err }},
	{name: "types into a terminal", try: func(prey) error { return call(unix.SYS_IOCTL, 0, unix.TIOCSTI) }},
	{name: "pastes into a terminal", try: func(prey) error { return call(unix.SYS_IOCTL, 0, tiocLinux) }},
	{name: "opens the terminal", try: func(prey) error { _, err := unix.Open("/dev/tty", unix.O_RDWR, 0); return err }, want: "EACCES"},
	{name: "sets an attribute", try: func(p prey) error { return unix.Setxattr(p.file, "user.x", []byte("x"), 0) }, want: "ENOTSUP"},
	{name: "watches a folder", try: func(p prey) error { _, err := unix.InotifyInit1(0); return err }},
	{name: "uses the x32 numbers of calls", try: func(prey) error { return call(0x40000000 + unix.SYS_SOCKET) }, want: "ENOSYS", free: "most kernels have no x32"},
}

// asUsers runs a test for each user that a server may run as: the one of the test and, where root can play it, nobody.
func asUsers(t *testing.T, do func(t *testing.T, as *syscall.Credential)) {
	t.Run("as this user", func(t *testing.T) { do(t, nil) })
	if os.Geteuid() == 0 {
		t.Run("as nobody", func(t *testing.T) { do(t, &syscall.Credential{Uid: 65534, Gid: 65534}) })
	}
}

// stage makes the prey, and a copy of this program that every user can run, in a folder that it returns.
func stage(t *testing.T, as *syscall.Credential) (dir, self string, p prey) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandbox-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self = filepath.Join(dir, "program", "hostile")
	p = prey{file: filepath.Join(dir, "file"), stream: filepath.Join(dir, "s"), dgram: filepath.Join(dir, "d")}
	program, err := os.ReadFile("/proc/self/exe")
	err = errors.Join(err, os.Mkdir(filepath.Dir(self), 0o755), os.WriteFile(self, program, 0o755), os.WriteFile(p.file, nil, 0o644))
	for _, name := range []string{p.stream, "@" + p.stream} {
		listener, e := net.Listen("unix", name)
		if err = errors.Join(err, e); e == nil {
			t.Cleanup(func() { _ = listener.Close() })
		}
	}
	datagrams, e := net.ListenPacket("unixgram", p.dgram)
	port, e2 := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, errors.Join(err, e, e2))
	t.Cleanup(func() { _, _ = datagrams.Close(), port.Close() })
	p.port = port.Addr().(*net.TCPAddr).Port
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	must.Do(t, other.Start())
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
	p.pid = other.Process.Pid
	for _, path := range []string{dir, p.file, p.stream, p.dgram} {
		must.Do(t, os.Chmod(path, 0o755))
		if as != nil {
			must.Do(t, os.Chown(path, int(as.Uid), int(as.Gid)))
		}
	}
	return dir, self, p
}

// run starts a program, in the sandbox if there is one, and returns what it printed.
func run(t *testing.T, s Settings, as *syscall.Credential, path string, args, env []string) string {
	t.Helper()
	path, args, env, err := s.Command(path, args, env)
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Credential: as}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v", out, err)
	}
	return string(out)
}

// A hostile program in a sandbox gets no way out, as root and as another user.
func TestAHostileProgramStaysInItsSandbox(t *testing.T) {
	asUsers(t, func(t *testing.T, as *syscall.Credential) {
		_, self, p := stage(t, as)
		s := supported(t, &Rules{Read: []string{}})
		var onPort, more []string
		for _, a := range attacks {
			if a.concernsPort() {
				onPort = append(onPort, a.name)
			} else {
				more = append(more, a.name)
			}
		}
		results := attacked(t, s.WithOwnPort(p.port), as, self, p, onPort...)
		maps.Copy(results, attacked(t, s, as, self, p, more...))
		for _, a := range attacks {
			if a.name == "signals a process" && abi() < 6 {
				continue // Linux 6.12 has it
			}
			if results[a.name] != a.wanted() {
				t.Errorf("it %s: %q, want %s", a.name, results[a.name], a.wanted())
			}
		}
	})
}

// Without a sandbox root is not refused in the same way: the sandbox refuses, not the machine.
func TestTheAttacksWorkWithoutASandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may do most of it")
	}
	_, self, p := stage(t, nil)
	for _, a := range attacks {
		got := attacked(t, Settings{}, nil, self, p, a.name)[a.name]
		if got == "" || got == a.wanted() && a.free == "" {
			t.Errorf("it %s: %q without a sandbox, too: this attack proves nothing", a.name, got)
		}
	}
}

// A 32-bit program, whose numbers mean other calls than those of the filter, is ended with its first call.
func TestA32BitProgramIsEnded(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("a program for x86")
	}
	const base, head = 0x8048000, 52 + 32
	program := []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x03\x00")
	code := []byte("\xb8\x01\x00\x00\x00\x31\xdb\xcd\x80") // exit(0)
	size := uint32(head + len(code))
	for _, n := range []any{
		uint32(1), uint32(base + head), uint32(52), uint32(0), uint32(0), // version, entry, program headers, sections, flags
		uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0), // sizes and numbers of headers
		uint32(1), uint32(0), uint32(base), uint32(base), size, size, uint32(5), uint32(4096), // one segment to load
	} {
		program, _ = binary.Append(program, binary.LittleEndian, n)
	}
	path := filepath.Join(t.TempDir(), "program")
	must.Do(t, os.WriteFile(path, append(program, code...), 0o755))
	if got := run(t, Settings{}, nil, path, []string{path}, nil); got != "" {
		t.Skip("the kernel runs no 32-bit programs: ", got)
	}
	if got := run(t, supported(t, &Rules{}), nil, path, []string{path}, nil); !strings.Contains(got, "bad system call") {
		t.Errorf("%q, want it ended", got)
	}
}

// A server in a sandbox changes neither modes nor owners, also of files that it may write. The calls succeed, so that
// programs that copy files go on.
func TestModesAndOwnersStay(t *testing.T) {
	asUsers(t, func(t *testing.T, as *syscall.Credential) {
		dir, _, p := stage(t, as)
		before := must.Get(os.Stat(p.file))(t)
		script := "chmod 777 " + p.file + " && chgrp $(id -g) " + p.file + " && cp -p " + p.file + " " + dir + "/copy && echo copied"
		if got := run(t, supported(t, &Rules{Write: []string{dir}}), as, "/bin/sh", []string{"sh", "-c", script}, []string{"PATH=" + os.Getenv("PATH")}); got != "copied\n" {
			t.Errorf("%q, want it copied", got)
		}
		if after, err := os.Stat(p.file); err != nil || after.Mode() != before.Mode() {
			t.Errorf("the mode was %v and is %v, %v", before.Mode(), after, err)
		}
	})
}

// A port that the rules name is closed where it is our own, and another stays open.
func TestOurOwnPortIsNeverOpen(t *testing.T) {
	_, self, p := stage(t, nil)
	for own, want := range map[int]string{p.port: "EACCES", p.port - 1: "done"} {
		for _, ports := range [][]int{nil, {p.port}} {
			s := supported(t, &Rules{Ports: ports}).WithOwnPort(own)
			name := "connects to our port"
			if got := attacked(t, s, nil, self, p, name)[name]; got != want {
				t.Errorf("ports %v, our own %d: it connects to %d: %s, want %s", ports, own, p.port, got, want)
			}
		}
	}
}

// ordinary are what servers do that must go on in a sandbox, in languages that servers are written in. Each prints ok.
var ordinary = map[string]string{
	"python3": `
import asyncio, multiprocessing, os, pathlib, shutil, socket, subprocess, sys, threading
os.chdir(sys.argv[1])
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
assert subprocess.run(["sh", "-c", "echo hi"], capture_output=True).stdout == b"hi\n"
async def main():
    p = await asyncio.create_subprocess_exec("sh", "-c", "echo hi", stdout=asyncio.subprocess.PIPE)
    assert (await p.communicate())[0] == b"hi\n"
asyncio.run(main())
t = threading.Thread(target=socket.getaddrinfo, args=("localhost", 80)); t.start(); t.join()
pathlib.Path("a").write_text("x"); shutil.copy2("a", "b"); os.mkdir("t"); shutil.copy2("a", "t/a"); shutil.copytree("t", "u")
import sqlite3; sqlite3.connect("d.db").execute("create table t (x)")
os.setpriority(os.PRIO_PROCESS, 0, 5)
import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); c.close()
near, far = multiprocessing.Pipe(); m = multiprocessing.Process(target=far.send, args=("hi",)); m.start(); assert near.recv() == "hi"; m.join()
print("ok")`,
	"node": `
const os = require('os'), fs = require('fs'), cp = require('child_process'), net = require('net'), dns = require('dns'), w = require('worker_threads')
process.chdir(process.argv[1])
if (!os.networkInterfaces().lo) throw 'no interfaces'
fs.writeFileSync('e', 'x'); fs.copyFileSync('e', 'f'); fs.cpSync('e', 'g'); fs.chmodSync('e', 0o600)
if (cp.execFileSync('sh', ['-c', 'echo hi']).toString() !== 'hi\n') throw 'no child'
fs.watch('.', () => {}).close()
new w.Worker('1', {eval: true}).on('exit', () => {
  fs.writeFileSync('child.js', 'process.send("hi")')
  cp.fork('child.js').on('message', () => dns.lookup('localhost', () => {
    const s = net.createServer(c => c.end()).listen(0, '127.0.0.1', () => net.connect(s.address().port, '127.0.0.1').on('close', () => { s.close(); console.log('ok'); process.exit() }).resume())
  }))
})`,
}

func TestOrdinaryProgramsRunInASandbox(t *testing.T) {
	asUsers(t, func(t *testing.T, as *syscall.Credential) {
		if as != nil {
			t.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin") // root's own folders are closed to others
		}
		for _, name := range slices.Sorted(maps.Keys(ordinary)) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Logf("no %s here", name)
				continue
			}
			dir, _, _ := stage(t, as)
			flag := map[string]string{"python3": "-c", "node": "-e"}[name]
			env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
			s := supported(t, &Rules{Write: []string{dir}})
			if got := run(t, s, as, path, []string{name, flag, ordinary[name], dir}, env); got != "ok\n" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
}
