package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Options say where Load looks. The zero value is a command line without flags.
type Options struct {
	Path    string                      // the file named by --config; "" to search
	Env     func(string) (string, bool) // default os.LookupEnv
	Dir     string                      // working directory; default the process's
	UserDir string                      // user's configuration directory, searched for toolfinch/; default os.UserConfigDir
	Flags   map[string]string           // values of flags, by the key of the file ("top_k"); lists are comma-separated
	Vault   OpenVault                   // opens the vault for the first ${secret:NAME}; nil: the file can have none
	Data    []byte                      // read in place of the bytes of the file; nil for the file

	Found     bool                                             // Path was found in the working folder by an earlier search
	Untrusted bool                                             // a file in the working folder needs no trust: nothing of it is started
	Trusts    func(path string, data []byte) (has, known bool) // default the user's list: see Trusted.Has
}

const envConfig = "MCPPROXY_CONFIG"

// fileNames are the names that Load looks for, in this order.
var fileNames = []string{"toolfinch.yaml", "toolfinch.yml", "toolfinch.json"}

// sharedName is looked for after fileNames. Other programs use the name, too, so the file
// must also name servers (see ours).
const sharedName = "config.yaml"

// maxSize bounds the file, in bytes.
const maxSize = 5 << 20

// Find returns the absolute path of the file that Load would read. The error wraps
// ErrNoConfig if there is no file, and is an *UntrustedError as for Load.
func Find(opts Options) (string, error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	file, err := find(opts, dir, homeDir(runtime.GOOS, opts.Env))
	if err != nil || !file.found {
		return file.path, err
	}
	data, bad := read(file)
	if bad != nil {
		return "", Errors{bad}
	}
	return file.path, opts.checkTrust(file, data)
}

// checkTrust returns an *UntrustedError for a file that a search found in the working folder,
// unless its bytes are trusted.
func (opts Options) checkTrust(from source, data []byte) error {
	if !from.found || opts.Untrusted {
		return nil
	}
	trusts := opts.Trusts
	if trusts == nil {
		list, err := UserTrusted()
		if err != nil {
			return err
		}
		trusts = list.Has
	}
	has, known := trusts(from.path, data)
	if has {
		return nil
	}
	return &UntrustedError{Path: from.path, Known: known, Data: data}
}

// UserFile returns the path of the user's own configuration, which commands find from any
// folder. It need not exist.
func UserFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	name, ok := configIn(filepath.Join(dir, "toolfinch"))
	if !ok {
		name = fileNames[0]
	}
	return filepath.Join(dir, "toolfinch", name), nil
}

// OwnFile returns the absolute path of the file that --config (path) or MCPPROXY_CONFIG names,
// else UserFile. It does not search the working folder.
func OwnFile(path string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	from, err := fileNamedBy(Options{Path: path, Env: os.LookupEnv}, dir, homeDir(runtime.GOOS, os.LookupEnv))
	if err != nil || from.path != "" {
		return from.path, err
	}
	return UserFile()
}

// FolderFile returns the path of the configuration in the working folder, "" without one. It
// reads nothing of it.
func FolderFile() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	name, ok := configIn(dir)
	if !ok {
		return ""
	}
	return filepath.Join(dir, name)
}

// fileNamedBy returns the file that the user names; the zero source for none.
func fileNamedBy(opts Options, dir, home string) (source, error) {
	if opts.Path != "" {
		return source{within(dir, opts.Path), opts.Path, "--config", opts.Found}, nil
	}
	path, _ := opts.Env(envConfig)
	if path == "" {
		return source{}, nil
	}
	full, err := tilde(path, home) // no shell has expanded it in a client's file
	if err != nil {
		return source{}, Errors{{File: path, Message: err.Error(), Hint: "named by " + envConfig}}
	}
	return source{within(dir, full), path, envConfig, false}, nil
}

func find(opts Options, dir, home string) (source, error) {
	if from, err := fileNamedBy(opts, dir, home); err != nil || from.path != "" {
		return from, err
	}
	userDir := ""
	if opts.UserDir == "" {
		opts.UserDir, _ = os.UserConfigDir() // without a home there is one place less
	}
	if opts.UserDir != "" {
		userDir = within(dir, filepath.Join(opts.UserDir, "toolfinch"))
	}
	if name, ok := configIn(dir); ok {
		return source{filepath.Join(dir, name), name, "", dir != userDir}, nil
	}
	looked := []string{dir}
	if userDir != "" {
		if name, ok := configIn(userDir); ok {
			path := filepath.Join(userDir, name)
			return source{path, path, "", false}, nil
		}
		looked = append(looked, userDir)
	}
	return source{}, noConfig(looked)
}

// configIn returns the name of a folder's configuration; ok is false without one.
func configIn(dir string) (name string, ok bool) {
	for _, name := range fileNames {
		if exists(filepath.Join(dir, name)) {
			return name, true
		}
	}
	return sharedName, ours(filepath.Join(dir, sharedName))
}

// ours reports whether a file names servers. An invalid file counts, so that Load reports
// its errors; an unreadable file does not.
func ours(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize))
	return err == nil && slices.ContainsFunc([]string{"mcp_servers", "mcpServers"}, func(block string) bool {
		return bytes.Contains(data, []byte(block))
	})
}

// exists reports whether a path exists. An unreadable file exists: Load then fails and
// tries no other file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func noConfig(looked []string) error {
	return fmt.Errorf(`%w: looked for %s in %s

  toolfinch setup                           takes over the servers of your MCP clients, and connects the clients
  toolfinch demo                            shows what it does, without a configuration
  toolfinch import                          takes over the servers of other clients
  toolfinch server add NAME COMMAND...      adds a server to your own configuration
  toolfinch init                            writes your own configuration with every key explained

Or name a file with --config or %s; that of Claude Desktop, Cursor or VS Code will do`,
		ErrNoConfig, oneOf(append(slices.Clone(fileNames), sharedName)), strings.Join(looked, " and "), envConfig)
}

func read(from source) ([]byte, *Error) {
	bad := func(message, hint string) *Error {
		if hint == "" && from.by != "" {
			hint = "named by " + from.by
		}
		return &Error{File: from.shown, Message: message, Hint: hint}
	}
	f, err := os.Open(from.path)
	if err != nil {
		return nil, bad(reason(err), "")
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, bad("is a folder", "name the file in it")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, bad(reason(err), "")
	}
	if len(data) > maxSize {
		return nil, bad(fmt.Sprintf("is larger than %d MiB", maxSize>>20), "is it a configuration?")
	}
	return data, nil
}

// reason is an error of a file without its path, which the message repeats otherwise.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return "cannot be read: " + err.Error()
}
