package discovery

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"regexp"
)

// TLS names the files of certificates for a server. The zero value means the machine's authorities, and no certificate.
type TLS struct {
	CAFile   string // authorities beside the machine's
	CertFile string // certificate of this client; other servers do not get it
	KeyFile  string // its key; default: in CertFile
}

// Configure reads the authorities now, and the certificate whenever a server asks for it.
func (t TLS) Configure(to *http.Transport) error {
	if t == (TLS{}) {
		return nil
	}
	config := &tls.Config{}
	if t.CAFile != "" {
		added, err := os.ReadFile(t.CAFile)
		if err != nil {
			return fmt.Errorf("ca_file cannot be read: %w", withoutPath(err))
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(added) {
			return errors.New("ca_file has no certificate in PEM")
		}
	}
	if t.CertFile != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(t.CertFile, cmp.Or(t.KeyFile, t.CertFile))
			if err != nil {
				return nil, fmt.Errorf("cert_file and key_file cannot be used: %w", withoutPath(err))
			}
			return &certificate, nil
		}
	}
	to.TLSClientConfig = config
	return nil
}

// withoutPath returns the error of a file without its path, which clients should not see.
func withoutPath(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of.Err
	}
	return err
}

// HintCertificate is the hint where a server may want a certificate.
const HintCertificate = "if the server wants a certificate of its clients, set cert_file and key_file"

// wantsCertificate matches the alerts of servers that got no certificate, or none that they accept.
var wantsCertificate = regexp.MustCompile(`cert|handshake failure`)

// WithHint adds to an error about certificates what to do about it.
func WithHint(err error) error {
	hint := ""
	remote, is := errors.AsType[*net.OpError](err)
	switch invalid, ok := errors.AsType[x509.CertificateInvalidError](err); {
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.SystemRootsError)):
		hint = "if the server has its own authority, set ca_file to that authority's certificate"
	case errors.As(err, new(x509.HostnameError)):
		hint = "write a host into the URL that the certificate names"
	case ok && invalid.Reason == x509.Expired:
		hint = "its owner renews it; is the clock of this machine right?"
	case is && remote.Op == "remote error" && wantsCertificate.MatchString(err.Error()): // the type of alerts is not exported
		hint = HintCertificate
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}
