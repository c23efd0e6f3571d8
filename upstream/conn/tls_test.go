package conn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/upstream/login"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ours"}})
	a.file = write(t, "CERTIFICATE", a.cert.Raw)
	return a
}

// sign signs a certificate, with its own key for an authority.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, by := template, key
	if a.cert != nil {
		parent, by = a.cert, a.key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func write(t *testing.T, pairs ...any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "certificate.pem")
	var text []byte
	for i := 0; i < len(pairs); i += 2 {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: pairs[i].(string), Bytes: pairs[i+1].([]byte)})...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A server with its own authority, or that wants a certificate of its clients, is reached with the files of its entry; without
// them the reason says which key is missing.
func TestCertificates(t *testing.T) {
	ours := newAuthority(t)
	client, key := ours.sign(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, both := write(t, "CERTIFICATE", client.Raw), write(t, "EC PRIVATE KEY", raw), write(t, "CERTIFICATE", client.Raw, "EC PRIVATE KEY", raw)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	old := x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	for name, test := range map[string]struct {
		files  discovery.TLS
		wants  bool // a certificate of the client
		tls12  bool
		server x509.Certificate
		reason string // "" if it is reached
	}{
		"its own authority":                    {files: discovery.TLS{CAFile: ours.file}},
		"its own authority, unknown":           {reason: "set ca_file"},
		"another authority":                    {files: discovery.TLS{CAFile: newAuthority(t).file}, reason: "set ca_file"},
		"no such file":                         {files: discovery.TLS{CAFile: missing}, reason: "ca_file cannot be read: no such file"},
		"no certificate in the file":           {files: discovery.TLS{CAFile: keyFile}, reason: "ca_file has no certificate"},
		"another host":                         {files: discovery.TLS{CAFile: ours.file}, server: x509.Certificate{DNSNames: []string{"other.example"}}, reason: "a host into the URL"},
		"expired":                              {files: discovery.TLS{CAFile: ours.file}, server: old, reason: "its owner renews it"},
		"it wants a certificate":               {files: discovery.TLS{CAFile: ours.file, CertFile: certFile, KeyFile: keyFile}, wants: true},
		"it wants a certificate, TLS 1.2":      {files: discovery.TLS{CAFile: ours.file, CertFile: certFile, KeyFile: keyFile}, wants: true, tls12: true},
		"certificate and key in one file":      {files: discovery.TLS{CAFile: ours.file, CertFile: both}, wants: true},
		"it wants a certificate, none":         {files: discovery.TLS{CAFile: ours.file}, wants: true, reason: "set cert_file and key_file"},
		"it wants a certificate, none, TLS1.2": {files: discovery.TLS{CAFile: ours.file}, wants: true, tls12: true, reason: "set cert_file and key_file"},
		"no such certificate":                  {files: discovery.TLS{CAFile: ours.file, CertFile: missing}, wants: true, reason: "cert_file and key_file cannot be used: no such file"},
		"a certificate without a key":          {files: discovery.TLS{CAFile: ours.file, CertFile: certFile}, wants: true, reason: "cert_file and key_file cannot be used"},
		"a certificate that nobody asked for":  {files: discovery.TLS{CAFile: ours.file, CertFile: both}},
	} {
		t.Run(name, func(t *testing.T) {
			template := test.server
			if template.DNSNames == nil {
				template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
			}
			cert, key := ours.sign(t, &template)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("User-Agent"); got != "toolfinch/1.2.3" {
					t.Errorf("the User-Agent is %q", got)
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`)
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			if test.wants {
				server.TLS.ClientAuth, server.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
				server.TLS.ClientCAs.AddCert(ours.cert)
			}
			if test.tls12 {
				server.TLS.MaxVersion = tls.VersionTLS12
			}
			server.StartTLS()
			defer server.Close()
			c, err := Dial(t.Context(), Options{URL: server.URL, TLS: test.files, ClientVersion: "1.2.3", Transport: TransportHTTP, Log: slog.New(slog.DiscardHandler), ConnectTimeout: time.Minute}, func(*Conn) Handler { return &heard{} })
			if err == nil {
				c.Close()
			}
			says(t, "a connection", err, test.reason, missing)
			logins := login.New(login.Options{Agent: "toolfinch/1.2.3"})
			defer logins.Close()
			_, err = logins.Server("notes", server.URL, login.Settings{TLS: test.files}).Probe(context.Background(), "")
			says(t, "a login", err, test.reason, missing)
		})
	}
}

func says(t *testing.T, what string, err error, reason, path string) {
	t.Helper()
	if (err == nil) != (reason == "") || err != nil && (!strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), path)) {
		t.Errorf("%s: %v, want %q", what, err, reason)
	}
}
