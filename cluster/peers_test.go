package cluster_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"toolfinch/cluster"
	"toolfinch/configs"
)

func peer(t testing.TB, keys ...configs.ClusterKey) *tls.Config {
	t.Helper()
	c, err := cluster.TLS(keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stranger has a certificate that no key of a cluster made, and takes any.
func stranger(t *testing.T) *tls.Config {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}, InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert}
}

// connect connects client to server, over TLS, and has a byte go each way. It returns what each side says of it.
func connect(t *testing.T, client, server *tls.Config) (ofClient, ofServer error) {
	t.Helper()
	near, far := net.Pipe()
	talk := func(c *tls.Conn) error {
		defer c.NetConn().Close() // a pipe has no buffer for the goodbye of TLS
		if err := c.Handshake(); err != nil {
			return err
		}
		sent := make(chan error, 1)
		go func() { _, err := c.Write([]byte{1}); sent <- err }()
		_, err := io.ReadFull(c, make([]byte, 1))
		if err != nil {
			return err
		}
		return <-sent
	}
	served := make(chan error, 1)
	go func() { served <- talk(tls.Server(far, server)) }()
	ofClient = talk(tls.Client(near, client))
	return ofClient, <-served
}

func TestOnlyReplicasTalkToReplicas(t *testing.T) {
	for _, c := range []struct {
		name           string
		client, server *tls.Config
		ok             bool
	}{
		{"the same key", peer(t, key(1)), peer(t, key(1)), true},
		{"one key in common, in another order", peer(t, key(1), key(2)), peer(t, key(2), key(1)), true},
		{"the other way around", peer(t, key(2), key(1)), peer(t, key(1), key(2)), true},
		{"one side has the new key behind, the other not at all", peer(t, key(1), key(2)), peer(t, key(1)), true},
		{"the other way around", peer(t, key(1)), peer(t, key(1), key(2)), true},
		{"another key", peer(t, key(1)), peer(t, key(2)), false},
		{"a client with a certificate of its own", stranger(t), peer(t, key(1)), false},
		{"a client without a certificate", &tls.Config{InsecureSkipVerify: true}, peer(t, key(1)), false},
		{"a server with a certificate of its own", peer(t, key(1)), stranger(t), false},
		{"a client of TLS 1.2", func() *tls.Config { c := peer(t, key(1)); c.MinVersion, c.MaxVersion = 0, tls.VersionTLS12; return c }(), peer(t, key(1)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ofClient, ofServer := connect(t, c.client, c.server)
			if c.ok && (ofClient != nil || ofServer != nil) {
				t.Errorf("they do not talk: %v; %v", ofClient, ofServer)
			}
			if !c.ok && (ofClient == nil || ofServer == nil) {
				t.Errorf("they talk: client %v, server %v", ofClient, ofServer)
			}
		})
	}
}
