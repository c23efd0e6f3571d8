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

// Limits of sending: of one request by default, of how long and how often one is tried again,
// and of the bytes that are read of an answer.
const (
	sendWithin  = 10 * time.Second
	tryWithin   = time.Minute
	tryFirst    = 5 * time.Second
	tryMost     = 30 * time.Second
	maxAccepted = 64 << 10
)

// collector sends spans over OTLP/HTTP, as binary protocol buffers: it is an otlptrace.Client.
// OpenTelemetry's own links gRPC, 2.3 MB, for one message of it that has the encoding of
// another, TracesData.
type collector struct {
	url    string
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
	c.url = at.String()
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
	c.client = &http.Client{Transport: way, Timeout: within}
	return c, nil
}

// trusted reads the certificates: whom to trust, and who we are.
func trusted(first func(name string) (key, value string)) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if key, file := first("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
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
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Start does nothing: connections are made when they are needed.
func (c *collector) Start(context.Context) error { return nil }

// Stop ends connections that nothing is sent over.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans, and tries again for a minute where a collector that is busy, or a
// network that is away, may be back.
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
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, c.send(ctx, body, header) }, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(tryWithin))
	return err
}

// send is one request. Its errors are permanent unless it is worth trying again.
func (c *collector) send(ctx context.Context, body []byte, header http.Header) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	request.Header = header
	response, err := c.client.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok && failed.Temporary() {
			return err
		}
		return backoff.Permanent(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAccepted))
	switch {
	case response.StatusCode < 300 && err == nil && response.Header.Get("Content-Type") == "application/x-protobuf":
		if n, why := rejected(answer); n != 0 || why != "" {
			return backoff.Permanent(fmt.Errorf("the collector took all but %d spans: %s", n, why))
		}
		return nil
	case response.StatusCode < 300:
		return nil
	}
	err = fmt.Errorf("the collector answered %s: %s", response.Status, answer)
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, no := strconv.Atoi(response.Header.Get("Retry-After")); no == nil && seconds > 0 {
			if seconds >= int(tryWithin/time.Second) {
				return backoff.Permanent(err)
			}
			return backoff.RetryAfter(seconds)
		}
		return err
	}
	return backoff.Permanent(err)
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
