package upstream

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"

	"toolfinch/tool"
)

// sealer makes the requestState of upstreams opaque to clients and impossible
// to make up, or to use for anything but what it was given for. Its key lives
// as long as the pool.
type sealer struct{ aead cipher.AEAD }

// state is what a sealed requestState says.
type state struct {
	Server string    `json:"s"`
	Kind   tool.Kind `json:"k,omitempty"`
	Name   string    `json:"n"`
	State  *string   `json:"u,omitempty"` // the upstream's own; nil when it gave none
	Afresh bool      `json:"a,omitempty"` // the upstream knows of nothing: call again as if for the first time
}

var errForeignState = errors.New("the state is not one of ours")

func newSealer() *sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has a length that AES knows
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of AES: never fails
	}
	return &sealer{aead}
}

func (s *sealer) seal(st state) (string, error) {
	text, err := json.Marshal(st)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil)), nil
}

// open returns what seal was given, for this definition and no other.
func (s *sealer) open(sealed string, id tool.ID) (state, error) {
	var st state
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return st, errForeignState
	}
	text, err := s.aead.Open(nil, nil, raw, nil)
	if err != nil || json.Unmarshal(text, &st) != nil {
		return st, errForeignState
	}
	if st.Server != id.Server || st.Kind != id.Kind || st.Name != id.Name {
		return st, errForeignState
	}
	return st, nil
}
