// Package cluster owns what one of several replicas that serve the same clients knows of the
// others: who they are, how they are reached, and where a session lives. It stores nothing
// itself, and does not know what is asked in a session.
package cluster

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"toolfinch/configs"
)

// Uses of a key. Each gets a key of its own, derived once at the start.
const (
	useSeal        = "toolfinch cluster session id"
	useCertificate = "toolfinch cluster certificate"
	useStates      = "toolfinch cluster states of calls"
)

// derive returns 32 bytes for one use of a key.
func derive(key configs.ClusterKey, use string) ([]byte, error) {
	derived, err := hkdf.Key(sha256.New, key[:], nil, use, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("cluster: derive a key: %w", err)
	}
	return derived, nil
}

// States returns the keys of what clients carry from one call to the next, whichever replica
// answers: one of each key of the cluster, in their order.
func States(keys []configs.ClusterKey) ([][32]byte, error) {
	all := make([][32]byte, len(keys))
	for i, key := range keys {
		derived, err := derive(key, useStates)
		if err != nil {
			return nil, err
		}
		all[i] = [32]byte(derived)
	}
	return all, nil
}

// Peer is a replica as others reach it.
type Peer struct {
	ID      string // unique, chosen at its start; up to 255 bytes
	Address string // host:port; up to 255 bytes
}

// Place is what the ID of a session says of it. It is no credential: who makes a request is
// compared with Owner.
type Place struct {
	Home  Peer   // where the session was opened
	View  string // that it was opened in
	Owner Owner  // whose it is
}

// Owner is the hash of a principal.
type Owner [16]byte

// OwnerOf returns the hash of a principal's ID, "" for nobody.
func OwnerOf(principal string) Owner {
	sum := sha256.Sum256([]byte(principal))
	return Owner(sum[:16])
}

// Seal makes and opens the IDs of sessions: base64url of a key's ID, a nonce, and what
// AES-256-GCM makes of a Place. Clients cannot read or make one.
type Seal struct {
	keys []sealKey // the first makes IDs; all open them
}

type sealKey struct {
	id   [sealIDSize]byte // says which key made an ID, and nothing of the key
	aead cipher.AEAD
}

const (
	sealIDSize = 4
	saltSize   = 16 // random bytes in a Place, beside the nonce: no two IDs are equal
	// maxSealed is how long an ID may be that is looked at: no view and no replica has a name
	// that makes a longer one.
	maxSealed = 4096
)

// NewSeal returns a seal by keys, of which there is at least one.
func NewSeal(keys []configs.ClusterKey) (*Seal, error) {
	s := &Seal{}
	for _, key := range keys {
		derived, err := derive(key, useSeal)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(derived)
		if err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		sum := sha256.Sum256(derived)
		s.keys = append(s.keys, sealKey{[sealIDSize]byte(sum[:]), aead})
	}
	if len(s.keys) == 0 {
		return nil, errors.New("cluster: there is no key")
	}
	return s, nil
}

// Make returns a new ID for a session at a place.
func (s *Seal) Make(p Place) string {
	key := s.keys[0]
	inside := make([]byte, 0, saltSize+len(p.Owner)+2+len(p.Home.ID)+len(p.Home.Address)+len(p.View))
	inside = inside[:saltSize]
	_, _ = rand.Read(inside) // never fails
	inside = append(inside, p.Owner[:]...)
	for _, text := range []string{p.Home.ID, p.Home.Address} {
		inside = append(inside, byte(len(text)))
		inside = append(inside, text...)
	}
	inside = append(inside, p.View...)

	out := make([]byte, sealIDSize+key.aead.NonceSize(), sealIDSize+key.aead.NonceSize()+len(inside)+key.aead.Overhead())
	copy(out, key.id[:])
	nonce := out[sealIDSize:]
	_, _ = rand.Read(nonce) // never fails
	return base64.RawURLEncoding.EncodeToString(key.aead.Seal(out, nonce, inside, key.id[:]))
}

// Open returns what the ID of a session says, and false for one that no key of ours made.
func (s *Seal) Open(id string) (Place, bool) {
	if len(id) > maxSealed {
		return Place{}, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(sealed) < sealIDSize {
		return Place{}, false
	}
	for _, key := range s.keys {
		size := sealIDSize + key.aead.NonceSize()
		if [sealIDSize]byte(sealed) != key.id || len(sealed) < size {
			continue
		}
		inside, err := key.aead.Open(nil, sealed[sealIDSize:size], sealed[size:], key.id[:])
		if err == nil {
			return placeOf(inside)
		}
	}
	return Place{}, false
}

func placeOf(inside []byte) (p Place, ok bool) {
	if len(inside) < saltSize+len(p.Owner) {
		return Place{}, false
	}
	p.Owner = Owner(inside[saltSize:])
	rest := inside[saltSize+len(p.Owner):]
	for _, text := range []*string{&p.Home.ID, &p.Home.Address} {
		if len(rest) == 0 || 1+int(rest[0]) > len(rest) {
			return Place{}, false
		}
		end := 1 + int(rest[0])
		*text, rest = string(rest[1:end]), rest[end:]
	}
	p.View = string(rest)
	return p, true
}
