package vault

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// EnvKey is the variable of the environment that may hold the key: 32 bytes in base64,
// or as 64 hexadecimal digits.
const EnvKey = "MCPPROXY_VAULT_KEY"

// TakeKey takes the key out of the environment: what this process starts must not get
// it, whatever of the environment it gets.
func TakeKey() string {
	value := os.Getenv(EnvKey)
	_ = os.Unsetenv(EnvKey)
	return value
}

// Where a key is kept.
const (
	inEnvironment = "environment"
	inKeyring     = "keyring"
	inFile        = "file"
	inMemory      = "memory"
)

// keyRow is the name of the row that says which key the others are sealed with.
const keyRow = "key"

// keys are where the key may be.
type keys struct {
	given []byte // of the environment; nil for none
	dir   string // of the key file
	ring  keyring
	log   *slog.Logger

	turn chan struct{} // guards what follows; a channel, so that waiting ends with a context. It is held over I/O
	have *key          // nil until it is needed
}

func newKeys(o Options) (keys, error) {
	k := keys{dir: o.KeyDir, ring: o.ring, log: o.Log, turn: make(chan struct{}, 1)}
	if k.ring == nil {
		k.ring = &osKeyring{patience: keyringPatience}
	}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if o.Key != "" {
		var err error
		if k.given, err = parseKey(o.Key); err != nil {
			return k, fmt.Errorf("vault: %s: %w", EnvKey, err)
		}
	}
	return k, nil
}

// parseKey reads a key as EnvKey and the key file have it.
func parseKey(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if secret, err := hex.DecodeString(text); err == nil && len(secret) == 32 {
		return secret, nil
	}
	for _, form := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if secret, err := form.DecodeString(strings.TrimRight(text, "=")); err == nil && len(secret) == 32 {
			return secret, nil
		}
	}
	return nil, errors.New("a key is 32 bytes in base64, or as 64 hexadecimal digits (openssl rand -base64 32 makes one)")
}

func formatKey(secret []byte) string { return base64.StdEncoding.EncodeToString(secret) }

// take waits for the turn.
func (k *keys) take(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// create makes a key and keeps it in the best place there is.
func (k *keys) create(ctx context.Context, durable bool) (*key, error) {
	if err := k.take(ctx); err != nil {
		return nil, err
	}
	defer func() { <-k.turn }()
	if k.given != nil {
		k.have = newKey(k.given, inEnvironment)
		return k.have, nil
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	if !durable {
		k.have = newKey(secret, inMemory)
		return k.have, nil
	}
	made := newKey(secret, inKeyring)
	noRing := k.ring.set(ctx, made.ID, formatKey(secret))
	if noRing == nil {
		var back string
		if back, noRing = k.ring.get(ctx, made.ID); noRing == nil && back != formatKey(secret) {
			noRing = errors.New("it returns something else than was put into it")
		}
	}
	if noRing != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		made.Holder = inFile
		if err := writeKey(k.path(made.ID), secret); err != nil {
			return nil, fmt.Errorf("the key file cannot be written: %w", err)
		}
		k.log.Warn("stored secrets are sealed with a key in a file, because no keyring can be used: keep it out of copies of the store", "file", k.path(made.ID), "keyring", noRing)
	}
	k.have = made
	return made, nil
}

// find returns the key that a note names.
func (k *keys) find(ctx context.Context, note keyNote) (*key, error) {
	if err := k.take(ctx); err != nil {
		return nil, err
	}
	defer func() { <-k.turn }()
	if k.have != nil && k.have.ID == note.ID {
		return k.have, nil
	}
	secret, err := k.look(ctx, note)
	if err != nil {
		return nil, err
	}
	k.have = newKey(secret, note.Holder)
	return k.have, nil
}

// look looks for a key everywhere: its owner may have moved it.
func (k *keys) look(ctx context.Context, note keyNote) ([]byte, error) {
	if k.given != nil {
		if keyID(k.given) == note.ID {
			return k.given, nil
		}
		return nil, &KeyError{ID: note.ID, Path: k.pathIf(note), Why: EnvKey + " has another key than the one that sealed what is stored, " + wasKept(note) +
			": set that one, or unset the variable where the key is elsewhere"}
	}
	secret, path, err := k.read(note)
	if secret != nil || err != nil {
		return secret, err
	}
	failed := &KeyError{ID: note.ID, Path: path}
	switch note.Holder {
	case inEnvironment:
		failed.Why = "it was given by " + EnvKey + ", which is not set: set it"
		return nil, failed
	case inKeyring:
		text, err := k.ring.get(ctx, note.ID)
		if err != nil {
			failed.Why, failed.Cause = "it is kept in the keyring, where it cannot be read: unlock the keyring, or bring the key back", err
			return nil, failed
		}
		if secret, err = parseKey(text); err != nil || keyID(secret) != note.ID {
			failed.Why = "the keyring has another one under its name: bring it back"
			return nil, failed
		}
		return secret, nil
	case inFile:
		failed.Why = "it was kept in a file, which is gone: bring it back"
		return nil, failed
	}
	failed.Why = "it is kept nowhere that is known here"
	return nil, failed
}

// wasKept says where a key was put.
func wasKept(note keyNote) string {
	switch note.Holder {
	case inEnvironment:
		return "which came from that variable too"
	case inKeyring:
		return "which is in the keyring"
	}
	return "which is in a file"
}

func (k *keys) path(id string) string { return filepath.Join(k.dir, id+".key") }

func (k *keys) pathIf(note keyNote) string {
	if note.Holder != inFile {
		return ""
	}
	return k.path(note.ID)
}

// read reads the key file, if there is one; path is that of a file that should be there.
func (k *keys) read(note keyNote) (secret []byte, path string, err error) {
	path = k.path(note.ID)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, k.pathIf(note), nil
	}
	failed := &KeyError{ID: note.ID, Path: path, Why: "its file cannot be read", Cause: err}
	if err != nil {
		return nil, path, failed
	}
	defer f.Close()
	info, err := f.Stat()
	if failed.Cause = err; err != nil {
		return nil, path, failed
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		failed.Why = "its file can be read or changed by others: chmod 600 the file"
		return nil, path, failed
	}
	text := make([]byte, 256)
	n, _ := f.Read(text)
	if secret, err = parseKey(string(text[:n])); err != nil || keyID(secret) != note.ID {
		failed.Why = "its file has another one in it: bring it back"
		return nil, path, failed
	}
	return secret, path, nil
}

// writeKey writes a new key file. What is there is never overwritten.
func writeKey(path string, secret []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(formatKey(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
