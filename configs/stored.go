package configs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"toolfinch/configs/document"
	"toolfinch/internal/nearest"
	"toolfinch/store/vault"
)

// secretPrefix begins the name of a variable that is a stored secret: ${secret:NAME}.
// Such a name is looked up like the others, and masked like others of secrets.
const secretPrefix = "secret:"

// secretRows begins the names of their rows in the vault.
const secretRows = "secret/"

var secretName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

const secretNameHint = "letters, digits, _, - and . make the name of a secret"

// SecretRow returns the name of the vault's row of a secret; "" is the prefix of all. A
// name has 1 to 128 letters, digits, _, - and dots.
func SecretRow(name string) (string, error) {
	if name != "" && !secretName.MatchString(name) {
		return "", fmt.Errorf("%q is no name of a secret: %s", shorten(name), secretNameHint)
	}
	return secretRows + name, nil
}

// Places are where a configuration keeps what is stored.
type Places struct {
	DataDir string // folder of what stays on this machine
	KeyDir  string // folder of the key file, where there is no keyring
	Store   string // the store: DataDir, or the URL of a PostgreSQL database
}

func placesOf(c *Config, env lookup) Places {
	return Places{c.DataDir, keyDirOf(c.DataDir, env), cmp.Or(c.Store, c.DataDir)}
}

// StoreName is the place of the store as it may be printed.
func (p Places) StoreName() string {
	if p.Store == p.DataDir {
		return p.Store
	}
	return maskURL(p.Store)
}

// OpenVault opens the vault of a store for reading. done ends its use.
type OpenVault func(Places) (v *vault.Vault, done func() error, err error)

// FindPlaces returns the places of the configuration that Load would read. Nothing else of
// it needs to be right.
func FindPlaces(opts Options) (Places, error) {
	d, data, err := opts.decoder()
	if err != nil {
		return Places{}, err
	}
	d.tree, _, _ = document.Parse(d.from.path, data)
	return d.places(opts.Flags, d.env)
}

// Places are where the configuration keeps what is stored.
func (c *Config) Places() Places { return placesOf(c, os.LookupEnv) }

// keyDirOf keeps the key apart from the store where both folders are ours. Beside a folder
// that the user chose there may be nothing that lasts, as in a container.
func keyDirOf(dataDir string, env lookup) string {
	if ours, err := defaultDataDir(runtime.GOOS, env); err == nil && filepath.Dir(dataDir) == ours {
		return filepath.Join(ours, "keys")
	}
	return filepath.Join(dataDir, "keys")
}

// places works the places out before the rest is read: secrets are found by them.
func (d *decoder) places(flags map[string]string, env lookup) (Places, error) {
	probe := newDecoder(d.from, d.workDir, env)
	c := Config{Path: d.from.path}
	for name, flag := range map[string]string{"data_dir": "--data-dir", "store": ""} {
		key := top.find(name)
		if d.tree != nil && d.tree.Given(name) != nil {
			n := d.tree.Given(name)
			if strings.Contains(n.Text, "${"+secretPrefix) {
				return Places{}, probe.at(n, name+" cannot have a secret in it", "secrets are found by it: write it out, or use a variable of the environment")
			}
			probe.setting(&c, name, n, name)
		}
		if value, _ := env(key.env); value != "" {
			probe.override(&c, name, key.env, value)
		}
		if value := flags[name]; value != "" && flag != "" {
			probe.override(&c, name, flag, value)
		}
	}
	probe.defaultDataDir(&c)
	if len(probe.errors) > 0 {
		return Places{}, probe.errors[0]
	}
	return placesOf(&c, env), nil
}

// stored are the secrets in the vault, which is opened when the first one is met.
type stored struct {
	open  func() (*vault.Vault, func() error, error)
	vault *vault.Vault
	done  func() error
	err   error // why it cannot be opened
	met   map[string]met
}

// met is what was found of one secret.
type met struct {
	value string
	err   error
}

func newStored(open func() (*vault.Vault, func() error, error)) *stored {
	return &stored{open: open, met: make(map[string]met)}
}

// lookup finds secrets, and in env what is none.
func (s *stored) lookup(env lookup) lookup {
	return func(name string) (string, bool) {
		name, is := strings.CutPrefix(name, secretPrefix)
		if !is {
			return env(name)
		}
		one, known := s.met[name]
		if !known {
			one.value, one.err = s.read(name)
			s.met[name] = one
		}
		return one.value, one.err == nil
	}
}

func (s *stored) read(name string) (string, error) {
	if s.vault == nil && s.err == nil {
		s.vault, s.done, s.err = s.open()
	}
	if s.err != nil {
		return "", s.err
	}
	value, err := s.vault.Get(context.Background(), secretRows+name) // the vault bounds its time
	return string(value), err
}

func (s *stored) close() {
	if s.done != nil {
		_ = s.done() // nothing was written
	}
}

// lost reports whether a secret is stored, or may be, and cannot be had.
func (s *stored) lost(name string) bool {
	name, is := strings.CutPrefix(name, secretPrefix)
	return is && s != nil && s.met[name].err != nil && !errors.Is(s.met[name].err, vault.ErrNotFound)
}

// explain says of a secret that could not be had why, and what to do.
func (s *stored) explain(e *substitutionError) *substitutionError {
	name := strings.TrimPrefix(e.unset, secretPrefix)
	err := s.met[name].err
	var noKey *vault.KeyError
	var misplaced *Error
	switch {
	case errors.As(err, &misplaced):
		return &substitutionError{message: fmt.Sprintf("secret %q cannot be looked up: %s", name, misplaced.Message), hint: misplaced.Hint}
	case errors.As(err, &noKey):
		return &substitutionError{message: fmt.Sprintf("secret %q: %v", name, noKey)}
	case !errors.Is(err, vault.ErrNotFound):
		return &substitutionError{message: fmt.Sprintf("secret %q: %v", name, err)}
	}
	rows, _ := s.vault.Names(context.Background(), secretRows) // a hint the less
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = strings.TrimPrefix(row.Name, secretRows)
	}
	if near := nearest.Names(name, names, 1, 0.5); len(near) > 0 {
		e.hint = fmt.Sprintf("did you mean %q? Else: %s", near[0], e.hint)
	}
	return e
}
