package configs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/store/vault"
)

// secretRows is the prefix of the vault's rows of secrets.
const secretRows = "secret/"

// SecretRow returns the name of a secret's row in the vault, or with "" the prefix of all
// rows. A name has 1 to 128 letters, digits, _, - and dots.
func SecretRow(name string) (string, error) {
	if name != "" && !secretName.MatchString(name) {
		return "", fmt.Errorf("%q is no name of a secret: %s", shorten(name), secretNameHint)
	}
	return secretRows + name, nil
}

// stored are the secrets in the vault, which is opened for the first secret.
type stored struct {
	open  func() (*vault.Vault, func() error, error)
	vault *vault.Vault
	done  func() error
	err   error // of open
	met   map[string]met
}

// met is the value of a secret, or the error of reading it.
type met struct {
	value string
	err   error
}

func newStored(open func() (*vault.Vault, func() error, error)) *stored {
	return &stored{open: open, met: make(map[string]met)}
}

// lookup finds stored secrets, and other variables in env.
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
	value, err := s.vault.Get(context.Background(), secretRows+name) // the vault has a timeout
	return string(value), err
}

func (s *stored) close() {
	if s.done != nil {
		_ = s.done() // the vault was only read
	}
}

// lost reports whether a secret may be stored but could not be read.
func (s *stored) lost(name string) bool {
	name, is := strings.CutPrefix(name, secretPrefix)
	return is && s != nil && s.met[name].err != nil && !errors.Is(s.met[name].err, vault.ErrNotFound)
}

// explain adds the reason and a hint to the error of a secret.
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
	rows, _ := s.vault.Names(context.Background(), secretRows) // without names there is no hint
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = strings.TrimPrefix(row.Name, secretRows)
	}
	if near := nearest.Names(name, names, 1, 0.5); len(near) > 0 {
		e.hint = fmt.Sprintf("did you mean %q? Else: %s", near[0], e.hint)
	}
	return e
}
