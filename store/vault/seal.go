package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// key is a key that seals and opens rows.
type key struct {
	keyNote
	aead cipher.AEAD
}

const (
	layout    = 1 // of a sealed row: this byte, the ID of the key, the nonce and what GCM makes
	idLen     = 8 // bytes
	headerLen = 1 + idLen
)

// newKey returns the key of these 32 bytes, kept where holder says.
func newKey(secret []byte, holder string) *key {
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err) // of another length than 32
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return &key{keyNote{ID: keyID(secret), Holder: holder}, aead}
}

// bound is what a sealed row is bound to beside the key: rows cannot be swapped.
func bound(header []byte, name string) []byte {
	return append(append([]byte("toolfinch vault "), header...), name...)
}

func (k *key) seal(name string, value []byte) []byte {
	id, _ := hex.DecodeString(k.ID)
	header := append([]byte{layout}, id...)
	return k.aead.Seal(header, nil, value, bound(header, name))
}

func (k *key) open(name string, sealed []byte) ([]byte, error) {
	if len(sealed) < headerLen || sealed[0] != layout {
		return nil, errors.New("what is stored is damaged, or a newer version of toolfinch has stored it")
	}
	header := sealed[:headerLen]
	if id := hex.EncodeToString(header[1:]); k == nil || id != k.ID {
		return nil, &KeyError{ID: id, Why: "another key than that of this store has sealed it"}
	}
	value, err := k.aead.Open(nil, nil, sealed[headerLen:], bound(header, name))
	if err != nil {
		return nil, errors.New("what is stored was altered or belongs to another name: store it again")
	}
	return value, nil
}

// keyID names a key without revealing it.
func keyID(secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("toolfinch vault key"))
	return hex.EncodeToString(mac.Sum(nil)[:idLen])
}

// keyNote is that row. The key is found by it wherever it is kept, and never made twice.
type keyNote struct {
	ID     string `json:"id"`     // of the key, which it does not reveal
	Holder string `json:"holder"` // where it was put when it was made
}

// KeyError says why the key cannot be had. Nothing was changed. Its text is for anybody;
// Path and Cause are for the owner.
type KeyError struct {
	ID    string // of the key
	Why   string // and what to do
	Path  string // of the key file; "" where the key is in none
	Cause error  // in the words of the keyring or the system; nil for none
}

func (e *KeyError) Error() string {
	return "what is stored is sealed with a key that cannot be had: " + e.Why + " (nothing was changed; toolfinch secret list says more)"
}
