package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Limits of sending: of one request by default, of how long and how often one is tried again
// (OTEL_BSP_EXPORT_TIMEOUT, by default 30 s, may end that before), and of the bytes that are
// read of an answer.
const (
	sendWithin  = 10 * time.Second
	tryWithin   = time.Minute
	tryFirst    = time.Second
	tryMost     = 30 * time.Second
	maxAccepted = 64 << 10
)

// collector sends spans over OTLP/HTTP, as binary protocol buffers: it is an otlptrace.Client.
// OpenTelemetry's own links gRPC, 2.3 MB, for one message of it that has the encoding of
// another, TracesData.
type collector struct {
	url    string
	host   string
	masked *strings.Replacer // takes the rest of url, which may be a secret, out of answers
	header http.Header
	gzip   bool
	client *http.Client
}

// openCollector reads the variables of the exporter. What cannot be read but can be done
// without is said, never with its value.
func openCollector(env func(string) string, version string, say func(problem string)) (*collector, error) {
	// first is the variable of traces, or else that of everything that is exported.
	first := func(name string) (key, value string) {
		for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
			if value := strings.TrimSpace(env(prefix + name)); value != "" {
				return prefix + name, value
			}
		}
		return "", ""
	}
	c := &collector{header: http.Header{"User-Agent": {"toolfinch/" + version}, "Content-Type": {"application/x-protobuf"}}}
	key, endpoint := first("ENDPOINT")
	at, err := url.Parse(cmp.Or(endpoint, "http://localhost:4318"))
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, fmt.Errorf("%s is no http:// or https:// URL", key)
	}
	if key != "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" { // that one has the whole path
		at.Path = path.Join("/", at.Path, "v1/traces")
	}
	at.User = nil // is for headers to say, and would stand in errors
	c.url, c.host = at.String(), at.Host
	parts := []string{} // the longest first: the first that fits is taken
	for _, part := range []string{at.RequestURI(), at.EscapedPath(), at.Path, at.RawQuery} {
		if len(part) > 1 {
			parts = append(parts, part, "[...]")
		}
	}
	c.masked = strings.NewReplacer(parts...)
	if key, headers := first("HEADERS"); headers != "" {
		for pair := range strings.SplitSeq(headers, ",") {
			name, value, ok := strings.Cut(pair, "=")
			value, err := url.PathUnescape(value)
			if name = strings.TrimSpace(name); !ok || err != nil || name == "" || strings.ContainsAny(name, " \t\r\n:") {
				say(key + " has a header that cannot be read: write name=value, with commas between")
				continue
			}
			c.header.Set(name, strings.TrimSpace(value))
		}
	}
	_, compression := first("COMPRESSION")
	c.gzip = compression == "gzip"
	within := sendWithin
	if key, timeout := first("TIMEOUT"); timeout != "" {
		if ms, err := strconv.Atoi(timeout); err != nil || ms <= 0 {
			say(key + " is no number of milliseconds")
		} else {
			within = time.Duration(ms) * time.Millisecond
		}
	}
	way := http.DefaultTransport.(*http.Transport).Clone()
	if way.TLSClientConfig, err = trusted(first); err != nil {
		return nil, err
	}
	c.client = &http.Client{Transport: way, Timeout: within, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // followed, a POST becomes a GET, and its headers go to another host
	}}
	return c, nil
}

// trusted reads the certificates: whom to trust, and who we are.
func trusted(first func(name string) (key, value string)) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if key, file := first("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, unreadable(key, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in the file", key)
		}
	}
	key, certificate := first("CLIENT_CERTIFICATE")
	_, private := first("CLIENT_KEY")
	if certificate != "" && private != "" {
		pair, err := tls.LoadX509KeyPair(certificate, private)
		if err != nil {
			return nil, unreadable(key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// unreadable is an error of reading the file of a variable, without its path: people have put the
// content there.
func unreadable(key string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", key, err)
}

// Start does nothing: connections are made when they are needed.
func (c *collector) Start(context.Context) error { return nil }

// Stop ends connections that nothing is sent over.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans, and tries again for a minute where a collector that is busy or
// restarts, or a network that is away, may be back. Its error is that of the last try.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	header := c.header
	if c.gzip {
		var out bytes.Buffer
		to := gzip.NewWriter(&out)
		if _, err := to.Write(body); err != nil {
			return err
		}
		if err := to.Close(); err != nil {
			return err
		}
		body, header = out.Bytes(), header.Clone()
		header.Set("Content-Encoding", "gzip")
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = tryFirst, tryMost
	var last error
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		failed, next := c.send(ctx, body, header)
		if last == nil || ctx.Err() == nil { // else it failed because the tries end
			last = failed
		}
		return struct{}{}, next
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(tryWithin))
	if err != nil {
		return last
	}
	return nil
}

// send is one request: why it failed, nil if it did not, and what that means for the next try.
func (c *collector) send(ctx context.Context, body []byte, header http.Header) (failed, next error) {
	permanent := func(err error) (failed, next error) { return err, backoff.Permanent(err) }
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return permanent(err)
	}
	request.Header = header
	response, err := c.client.Do(request)
	if err != nil {
		again := mayPass(err)
		if whole, ok := errors.AsType[*url.Error](err); ok { // which has the whole URL
			err = whole.Err
		}
		err = fmt.Errorf("%s: %w", c.host, err)
		if again {
			return err, err
		}
		return permanent(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAccepted))
	switch {
	case response.StatusCode < 300 && err == nil && response.Header.Get("Content-Type") == "application/x-protobuf":
		if n, why := rejected(answer); n != 0 || why != "" {
			return permanent(fmt.Errorf("the collector took all but %d spans: %s", n, c.masked.Replace(why)))
		}
		return nil, nil
	case response.StatusCode < 300:
		return nil, nil
	case response.StatusCode < 400:
		return permanent(fmt.Errorf("the collector answered %s: redirects are not followed", response.Status))
	}
	err = fmt.Errorf("the collector answered %s: %s", response.Status, c.masked.Replace(string(answer)))
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, no := strconv.Atoi(response.Header.Get("Retry-After")); no == nil && seconds > 0 {
			if seconds >= int(tryWithin/time.Second) {
				return permanent(err)
			}
			return err, backoff.RetryAfter(seconds)
		}
		return err, err
	}
	return permanent(err)
}

// mayPass reports whether what a request failed with may be over soon: nobody listens, a
// connection has broken, or a time has run out. net/http says that in errors of many kinds, some
// of them without a type; what stays has one: a host that there is not, and what TLS refuses.
func mayPass(err error) bool {
	if unknown, ok := errors.AsType[*net.DNSError](err); ok {
		return !unknown.IsNotFound
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return false
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return false
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return !ok || failed.Op != "remote error" && failed.Op != "local error" // alerts of TLS
}

// rejected reads an ExportTraceServiceResponse: how many spans were not taken, and why. The
// fields are those of opentelemetry/proto/collector/trace/v1: partial_success is 1, in it
// rejected_spans 1 and error_message 2.
func rejected(answer []byte) (n uint64, why string) {
	for number, value := range fields(answer) {
		if number != 1 {
			continue
		}
		partial, _ := protowire.ConsumeBytes(value)
		for number, value := range fields(partial) {
			switch number {
			case 1:
				n, _ = protowire.ConsumeVarint(value)
			case 2:
				text, _ := protowire.ConsumeBytes(value)
				why = string(text)
			}
		}
	}
	return n, why
}

// fields yields the fields of a message, as far as it is one.
func fields(message []byte) func(yield func(protowire.Number, []byte) bool) {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(message) > 0 {
			number, kind, n := protowire.ConsumeTag(message)
			if n < 0 {
				return
			}
			message = message[n:]
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 || !yield(number, message[:n]) {
				return
			}
			message = message[n:]
		}
	}
}
