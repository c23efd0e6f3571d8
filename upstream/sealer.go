package upstream

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// sealer encrypts the requestState of servers for clients. A sealed state cannot be forged,
// and is valid only for the definition that it was sealed for.
type sealer struct{ aead cipher.AEAD }

// state is the content of a sealed requestState.
type state struct {
	Server string      `json:"s"`
	Kind   tool.Kind   `json:"k,omitempty"`
	Name   string      `json:"n"`
	State  *string     `json:"u,omitempty"` // the server's own requestState; nil if it sent none
	Afresh bool        `json:"a,omitempty"` // the server keeps no state: repeat the call without responses
	Login  *askedLogin `json:"p,omitempty"` // the login whose page the client was asked to open
}

// askedLogin is a login whose page a client was asked to open.
type askedLogin struct {
	Mark string `json:"m"` // mark of the token that the server refused
	ID   string `json:"i"` // ID of the login
}

func newSealer(key [32]byte) *sealer {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // cannot happen: the key has a valid length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // never fails for AES
	}
	return &sealer{aead}
}

func (s *sealer) seal(st state) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, rawjson.Of(st), nil))
}

// open returns a sealed state. ok is false if it was sealed for another definition.
func (s *sealer) open(sealed string, id tool.ID) (st state, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return st, false
	}
	text, err := s.aead.Open(nil, nil, raw, nil)
	if err != nil || json.Unmarshal(text, &st) != nil {
		return st, false
	}
	return st, st.Server == id.Server && st.Kind == id.Kind && st.Name == id.Name
}
