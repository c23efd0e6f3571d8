package configs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/store/vault"
)

// secretRows begins the names of their rows in the vault.
const secretRows = "secret/"

// SecretRow returns the name of the vault's row of a secret; "" is the prefix of all. A
// name has 1 to 128 letters, digits, _, - and dots.
func SecretRow(name string) (string, error) {
	if name != "" && !secretName.MatchString(name) {
		return "", fmt.Errorf("%q is no name of a secret: %s", shorten(name), secretNameHint)
	}
	return secretRows + name, nil
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
