package embed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/cenkalti/backoff/v5"
	openai "github.com/sashabaranov/go-openai"
)

// MaxText bounds the bytes of a text that are sent to an endpoint.
const MaxText = 8_000

// Bounds of one request. OpenAI takes 2,048 texts of 8,192 tokens each and 300,000 tokens together; compatible
// servers take fewer texts, some only 100. No byte-level vocabulary makes more tokens than bytes, so bytes stand
// for tokens: the first 8,000 bytes suffice to find a tool.
const (
	maxTexts   = 64
	maxRequest = 300_000
	maxAnswer  = 32 << 20
)

// Bounds of one batch with its retries.
const (
	requestTimeout = 2 * time.Minute // a local server without a GPU is slow
	maxTries       = 5
	maxWait        = time.Minute // a longer Retry-After ends the retries
)

// remote is an endpoint with OpenAI's embeddings API.
type remote struct {
	settings OpenAI
	endpoint string // URL without user and password
	http     *http.Client
	log      *slog.Logger
	wait     func(context.Context, time.Duration) error
	dim      atomic.Int64 // of its vectors; 0 until the first vector

	mu    sync.Mutex   // guards unfit
	unfit map[Key]bool // refused texts
}

func openRemote(s OpenAI, log *slog.Logger) (*remote, error) {
	if s.APIKey == "" && s.BaseURL == "" {
		return nil, errors.New("there is neither a key nor a base URL (set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own)")
	}
	s.Model = cmp.Or(s.Model, DefaultOpenAIModel)
	s.BaseURL = strings.TrimRight(cmp.Or(s.BaseURL, openai.DefaultConfig("").BaseURL), "/")
	endpoint, err := url.Parse(s.BaseURL)
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Hostname() == "" || endpoint.RawQuery != "" {
		// The URL is not shown: it may hold a password.
		return nil, errors.New("the base URL is not an http or https URL without a query (like http://localhost:11434/v1)")
	}
	endpoint.User = nil
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second} // laptops change networks
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	r := &remote{
		settings: s,
		endpoint: endpoint.String(),
		http: &http.Client{
			Transport: transport,
			Timeout:   requestTimeout,
			// A redirected POST becomes a GET, so a redirect is an error.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		log:  log,
		wait: wait,
	}
	r.dim.Store(int64(s.Dimensions))
	return r, nil
}

// ID contains the endpoint: servers use one name for different weights.
func (r *remote) ID() string {
	id := "openai:" + r.settings.Model + ":" + r.endpoint
	if r.settings.Dimensions > 0 {
		id += ":" + strconv.Itoa(r.settings.Dimensions)
	}
	if r.settings.MaxBytes > 0 {
		id += ":" + strconv.Itoa(r.settings.MaxBytes) + "B"
	}
	return id
}

// String does not show the key.
func (r *remote) String() string { return r.ID() }

// GoString is String.
func (r *remote) GoString() string { return r.ID() }

func (r *remote) Close() error {
	r.http.CloseIdleConnections()
	return nil
}

// Embed retries transient failures, but not for a query, because a client waits. It does not send a refused
// document again.
func (r *remote) Embed(ctx context.Context, role Role, texts []string) ([][]float32, error) {
	tries := maxTries
	if role == Query {
		tries = 1
	}
	out := make([][]float32, len(texts))
	var rest []string
	var places []int // indexes of rest in texts
	for i, text := range acceptable(texts, cmp.Or(r.settings.MaxBytes, MaxText)) {
		if role == Query || !r.isUnfit(text) {
			rest, places = append(rest, text), append(places, i)
		}
	}
	for len(rest) > 0 {
		n := fitting(rest)
		vectors, err := r.try(ctx, rest[:n], tries)
		if role == Document && errors.As(err, new(ofText)) {
			if _, fails := r.try(ctx, []string{control}, 1); fails == nil { // else the endpoint embeds nothing now
				vectors, err = r.apart(ctx, rest[:n], err)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("embed with %s at %s: %w", r.settings.Model, r.endpoint, err)
		}
		for i, vector := range vectors {
			out[places[i]] = vector
		}
		rest, places = rest[n:], places[n:]
	}
	return out, nil
}

// ofText is an error that one of the texts may have caused.
type ofText struct{ error }

func (o ofText) Unwrap() error { return o.error }

// control is a text that every working endpoint embeds.
const control = "tool"

// maxUnfit bounds the refused texts. Above it, embedding fails as a whole, and is retried after growing pauses.
const maxUnfit = 10_000

func (r *remote) isUnfit(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unfit[sha256.Sum256([]byte(text))]
}

// apart embeds texts that are refused together, with the error why, by halves: a text that is refused alone gets no
// vector.
func (r *remote) apart(ctx context.Context, texts []string, why error) ([][]float32, error) {
	if len(texts) == 1 {
		if _, fails := r.try(ctx, []string{control}, 1); fails != nil {
			return nil, why
		}
		r.log.Warn("a text is refused: what has it is found by words alone", "model", r.settings.Model, "text", r.excerpt(texts[0]), "error", why)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.unfit) >= maxUnfit { // further refused texts would be sent again and again
			return nil, why
		}
		if r.unfit == nil {
			r.unfit = map[Key]bool{}
		}
		r.unfit[sha256.Sum256([]byte(texts[0]))] = true
		return [][]float32{nil}, nil
	}
	var out [][]float32
	for _, half := range [][]string{texts[:len(texts)/2], texts[len(texts)/2:]} {
		vectors, err := r.try(ctx, half, 2)
		if errors.As(err, new(ofText)) {
			vectors, err = r.apart(ctx, half, err)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, vectors...)
	}
	return out, nil
}

// acceptable returns the texts in the form that endpoints accept: valid UTF-8, not empty, and cut between
// characters.
func acceptable(texts []string, maxText int) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		text = strings.ToValidUTF8(text, "\ufffd")
		if len(text) > maxText {
			n := maxText
			for !utf8.RuneStart(text[n]) {
				n--
			}
			text = text[:n]
		}
		out[i] = cmp.Or(text, " ")
	}
	return out
}

// fitting returns how many of the texts, at least one, fit into one request.
func fitting(texts []string) int {
	n, size := 0, 0
	for n < min(len(texts), maxTexts) && size+len(texts[n]) <= maxRequest {
		size += len(texts[n])
		n++
	}
	return n
}

// failure is a failed attempt.
type failure struct {
	err       error
	transient bool          // the same request may succeed later
	after     time.Duration // wait that the server asks for; 0: none
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// try embeds one batch in a bounded number of attempts.
func (r *remote) try(ctx context.Context, texts []string, tries int) (vectors [][]float32, err error) {
	err = r.repeat(ctx, tries, func() (failed *failure) {
		vectors, failed = r.attempt(ctx, texts)
		return failed
	})
	return vectors, err
}

// repeat makes attempts until one succeeds, within a bound.
func (r *remote) repeat(ctx context.Context, tries int, attempt func() *failure) error {
	pause := backoff.NewExponentialBackOff()
	pause.Multiplier = 2
	for {
		failed := attempt()
		if failed == nil {
			return nil
		}
		tries--
		next := max(pause.NextBackOff(), failed.after)
		if !failed.transient || tries <= 0 || next > maxWait || endsWithin(ctx, next) {
			return failed.err
		}
		r.log.Warn("request failed; it is repeated", "model", r.settings.Model, "in", next, "error", failed.err)
		if err := r.wait(ctx, next); err != nil {
			return fmt.Errorf("%w (before: %w)", err, failed.err)
		}
	}
}

func endsWithin(ctx context.Context, d time.Duration) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < d
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attempt sends one request and checks the whole answer.
func (r *remote) attempt(ctx context.Context, texts []string) ([][]float32, *failure) {
	x := &exchange{http: r.http}
	config := openai.DefaultConfig(string(r.settings.APIKey))
	config.BaseURL, config.HTTPClient = r.settings.BaseURL, x
	answer, err := openai.NewClientWithConfig(config).CreateEmbeddings(ctx, openai.EmbeddingRequestStrings{
		Input:          texts,
		Model:          openai.EmbeddingModel(r.settings.Model),
		EncodingFormat: openai.EmbeddingEncodingFormatFloat, // base64 breaks on servers that answer floats anyway
		Dimensions:     r.settings.Dimensions,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &failure{err: context.Cause(ctx)}
	case err != nil && x.broken:
		return nil, &failure{err: r.veil(err), transient: true}
	case err != nil:
		return nil, r.refused(err, x.after)
	}
	vectors, err := r.arrange(answer.Data, len(texts))
	if err != nil {
		return nil, &failure{err: err}
	}
	return vectors, nil
}

// noQuota comes with status 429, but waiting does not help.
const noQuota = "insufficient_quota"

// refused returns the failure for an answer without vectors.
func (r *remote) refused(err error, after time.Duration) *failure {
	var status int
	var message, code string
	// A RequestError may wrap a partly read APIError: it comes first.
	if request, ok := errors.AsType[*openai.RequestError](err); ok {
		status, message = request.HTTPStatusCode, string(request.Body)
	} else if api, ok := errors.AsType[*openai.APIError](err); ok {
		status, message = api.HTTPStatusCode, api.Message
		code, _ = api.Code.(string) // some servers send a number
		if api.Type == noQuota {
			code = noQuota
		}
	} else {
		return &failure{err: r.veil(err)}
	}
	hint := ""
	transient := status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500
	switch {
	case code == noQuota:
		transient, hint = false, " (the account has no quota left)"
	case status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge:
		hint = " (if a text is too long for the model, set openai_max_bytes)"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		hint = " (check OPENAI_API_KEY)"
	case status == http.StatusNotFound:
		hint = " (check the model, and the base URL: most end with /v1)"
	}
	said := ""
	if message = r.excerpt(message); message != "" {
		said = ": " + message
	}
	why := fmt.Errorf("status %d %s%s%s", status, http.StatusText(status), said, hint)
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		why = ofText{why}
	}
	return &failure{err: why, transient: transient, after: after}
}

// excerpt returns a server's text as one short line without the key, which some servers repeat.
func (r *remote) excerpt(s string) string {
	const most = 300
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "")), " ")
	if r.settings.APIKey != "" {
		s = strings.ReplaceAll(s, string(r.settings.APIKey), "[key]")
	}
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "..."
	}
	return s
}

// veiled is an error whose text hides the key.
type veiled struct {
	err  error
	text string
}

func (v *veiled) Error() string { return v.text }
func (v *veiled) Unwrap() error { return v.err }

func (r *remote) veil(err error) error { return &veiled{err, r.excerpt(err.Error())} }

// arrange checks the vectors and returns them in the order of the texts.
func (r *remote) arrange(data []openai.Embedding, n int) ([][]float32, error) {
	if len(data) != n {
		return nil, fmt.Errorf("the answer has %d vectors for %d texts", len(data), n)
	}
	out := make([][]float32, n)
	for _, d := range data {
		switch {
		case d.Index < 0 || d.Index >= n:
			return nil, fmt.Errorf("the answer has a vector for text %d of %d", d.Index, n)
		case out[d.Index] != nil:
			return nil, fmt.Errorf("the answer has two vectors for text %d", d.Index)
		case len(d.Embedding) == 0:
			return nil, fmt.Errorf("the vector of text %d is empty", d.Index)
		case !normalize(d.Embedding):
			return nil, ofText{fmt.Errorf("the vector of text %d is zero or not finite", d.Index)}
		}
		if dim := int64(len(d.Embedding)); !r.dim.CompareAndSwap(0, dim) && r.dim.Load() != dim {
			return nil, fmt.Errorf("the vector of text %d has %d dimensions, not %d (has the model changed, or does it not obey openai_dimensions?)", d.Index, dim, r.dim.Load())
		}
		out[d.Index] = d.Embedding
	}
	return out, nil
}

// exchange is one HTTP request. go-openai hides the headers of an error, reads without a bound, and takes an error
// with status 200 for an empty answer, and null for 0.
type exchange struct {
	http   *http.Client
	most   int           // bytes of the answer; default maxAnswer
	after  time.Duration // value of Retry-After
	broken bool          // the answer is incomplete
}

func (x *exchange) Do(request *http.Request) (*http.Response, error) {
	response, err := x.http.Do(request)
	if err != nil {
		x.broken = true
		return nil, err
	}
	defer response.Body.Close()
	x.after = retryAfter(response.Header.Get("Retry-After"), time.Now())
	most := cmp.Or(x.most, maxAnswer)
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	switch status := response.StatusCode; {
	case err != nil:
		x.broken = true
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(body) > most:
		return nil, fmt.Errorf("the answer is larger than %d KiB", most>>10)
	case status >= 300 && status < 400:
		return nil, fmt.Errorf("status %d: the endpoint has moved (set OPENAI_BASE_URL to where it is now)", status)
	case status < 300:
		if err := checkAnswer(body); err != nil {
			return nil, err
		}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// checkAnswer finds errors that go-openai overlooks in a successful answer.
func checkAnswer(body []byte) error {
	var answer struct {
		Error json.RawMessage `json:"error"`
		Data  []struct {
			Index     *int            `json:"index"`
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("the answer has no vectors: %w (check the base URL: most end with /v1)", err)
	}
	if len(answer.Error) > 0 && string(answer.Error) != "null" {
		return fmt.Errorf("the answer is an error: %s", answer.Error)
	}
	for i, d := range answer.Data {
		switch {
		case d.Index == nil:
			return fmt.Errorf("vector %d of the answer does not say for which text it is", i)
		case len(d.Embedding) == 0 || string(d.Embedding) == "null":
			return ofText{fmt.Errorf("the answer has no vector for text %d", *d.Index)}
		case d.Embedding[0] != '[':
			return fmt.Errorf("the vector of text %d is no list of numbers, which was asked for", *d.Index)
		case bytes.Contains(d.Embedding, []byte("null")): // some servers write infinite numbers so
			return ofText{fmt.Errorf("the vector of text %d is not finite: null is in it", *d.Index)}
		}
	}
	return nil
}

// retryAfter reads the header: seconds or a date. It returns 0 for anything else and for a past date.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseFloat(header, 64); err == nil && seconds >= 0 {
		const most = 24 * time.Hour // far above the waits in use
		return time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}
