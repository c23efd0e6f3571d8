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

// Limits of sending: of one request by default, of the time and number of its retries
// (OTEL_BSP_EXPORT_TIMEOUT, by default 30 s, may end them earlier), and of an answer's bytes.
const (
	sendWithin  = 10 * time.Second
	tryWithin   = time.Minute
	tryFirst    = time.Second
	tryMost     = 30 * time.Second
	maxAccepted = 64 << 10
)

// collector sends spans over OTLP/HTTP, as binary protocol buffers: it is an otlptrace.Client.
// OpenTelemetry's own links gRPC, 2.3 MB, for one message with the encoding of TracesData.
type collector struct {
	url    string
	host   string
	masked *strings.Replacer // masks all of url but its host in answers: it may be secret
	header http.Header
	gzip   bool
	client *http.Client
}

// openCollector reads the exporter's variables. It reports unusable optional ones to say, without their
// values.
func openCollector(env func(string) string, version string, say func(problem string)) (*collector, error) {
	// first is the variable for traces, else the variable for all signals.
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
	if key != "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" { // that variable has the whole path
		at.Path = path.Join("/", at.Path, "v1/traces")
	}
	at.User = nil // credentials belong into headers, and would appear in errors
	c.url, c.host = at.String(), at.Host
	parts := []string{} // the longest first, because the first match wins
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
		return http.ErrUseLastResponse // a redirected POST would become a GET, with its headers sent to another host
	}}
	return c, nil
}

// trusted reads the certificates of the collector's authority and of this client.
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

// unreadable is an error of reading a variable's file, without its path: some people set the content
// instead.
func unreadable(key string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", key, err)
}

// Start does nothing: the first request connects.
func (c *collector) Start(context.Context) error { return nil }

// Stop closes idle connections.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. It retries for a minute if the collector is busy or restarts, or the
// network is down. Its error is from the last attempt.
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
		if last == nil || ctx.Err() == nil { // otherwise the time for retries is over
			last = failed
		}
		return struct{}{}, next
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(tryWithin))
	if err != nil {
		return last
	}
	return nil
}

// send makes one request: its failure, nil for success, and what that means for the next attempt.
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
		if whole, ok := errors.AsType[*url.Error](err); ok { // its text has the whole URL
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

// mayPass reports whether a request's failure may be over soon: nobody listens, a connection has
// broken, or a time has run out. net/http has many errors for that, some without a type; permanent ones
// have one: an unknown host, and TLS refusals.
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

// rejected reads an ExportTraceServiceResponse: how many spans were refused, and why. The fields are
// from opentelemetry/proto/collector/trace/v1: partial_success is 1, in it rejected_spans 1 and
// error_message 2.
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

// fields yields the fields of a message, up to the first invalid one.
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
