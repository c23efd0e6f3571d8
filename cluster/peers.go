package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"toolfinch/configs"
)

// errStranger is the end of a connection with somebody who has no key of the cluster.
var errStranger = errors.New("the other side has none of the keys in cluster.keys: write the same ones for every replica")

// TLS returns how replicas talk to each other: both sides prove that they have one of the
// keys. An ed25519 key is derived from each; the certificate around it says nothing else, and
// is not looked at otherwise.
func TLS(keys []configs.ClusterKey) (*tls.Config, error) {
	var known []ed25519.PublicKey
	var shown *tls.Certificate
	for _, key := range keys {
		seed, err := derive(key, useCertificate)
		if err != nil {
			return nil, err
		}
		private := ed25519.NewKeyFromSeed(seed)
		known = append(known, private.Public().(ed25519.PublicKey))
		if shown != nil {
			continue
		}
		if shown, err = certificate(private); err != nil {
			return nil, err
		}
	}
	if shown == nil {
		return nil, errors.New("cluster: there is no key")
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{*shown},
		ClientAuth:   tls.RequireAnyClientCert,
		// Who the other side is follows from its key alone, which VerifyConnection looks at on
		// both sides, also where a connection resumes another.
		InsecureSkipVerify: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 {
				return errStranger
			}
			shows, ok := c.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !slices.ContainsFunc(known, func(one ed25519.PublicKey) bool { return one.Equal(shows) }) {
				return errStranger
			}
			return nil
		},
	}, nil
}

// certificate wraps a key as TLS wants it.
func certificate(key ed25519.PrivateKey) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "toolfinch"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no end that is known
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cluster: make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
