package embed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"toolfinch/internal/must"
)

const key = "sk-hunter2-hunter2"

// endpoint is a server of the embeddings API that answers as a test wants.
type endpoint struct {
	*httptest.Server
	mu       sync.Mutex // guards requests and headers
	requests []request
	headers  []http.Header
}

type request struct {
	Input          []string `json:"input"`
	Model          string   `json:"model"`
	EncodingFormat string   `json:"encoding_format"`
	Dimensions     int      `json:"dimensions"`
}

// listen serves answer, which gets the number of the request, from 1.
func listen(t *testing.T, answer func(w http.ResponseWriter, in request, n int)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v1/embeddings" || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		e.mu.Lock()
		e.requests, e.headers = append(e.requests, in), append(e.headers, r.Header)
		n := len(e.requests)
		e.mu.Unlock()
		answer(w, in, n)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.requests)
}

// dial opens an embedder that notes its waits instead of waiting.
func dial(t *testing.T, e *endpoint, s OpenAI, log io.Writer) (*remote, *[]time.Duration) {
	t.Helper()
	s.BaseURL = e.URL + "/v1/"
	r := must.Get(openRemote(s, slog.New(slog.NewTextHandler(log, nil))))(t)
	t.Cleanup(func() { _ = r.Close() })
	waits := &[]time.Duration{}
	r.wait = func(_ context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		return nil
	}
	return r, waits
}

// vector is the answer for a text: it tells texts of different length apart.
func vector(text string) []float64 { return []float64{float64(len(text)), 1, 0} }

func good(w http.ResponseWriter, in request, _ int) {
	type item struct {
		Index     int       `json:"index"`
		Embedding []float64 `json:"embedding"`
	}
	var answer struct {
		Data []item `json:"data"`
	}
	for i, text := range in.Input {
		answer.Data = append(answer.Data, item{i, vector(text)})
	}
	slices.Reverse(answer.Data) // the index counts, not the place
	_ = json.NewEncoder(w).Encode(answer)
}

func TestOpenAI(t *testing.T) {
	e := listen(t, good)
	r, _ := dial(t, e, OpenAI{APIKey: key, Model: "m", Dimensions: 3}, io.Discard)
	got := must.Get(r.Embed(t.Context(), Document, []string{"a", "four", ""}))(t)
	var want [][]float32
	for _, text := range []string{"a", "four", " "} {
		v := vector(text)
		length := math.Hypot(v[0], v[1])
		want = append(want, []float32{float32(v[0] / length), float32(v[1] / length), 0})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := (request{[]string{"a", "four", " "}, "m", "float", 3}); !reflect.DeepEqual(e.requests[0], want) {
		t.Errorf("asked for %+v, want %+v", e.requests[0], want)
	}
	if got := e.headers[0].Get("Authorization"); got != "Bearer "+key {
		t.Errorf("authorization: %q", got)
	}
	if got := r.ID(); got != "openai:m:"+e.URL+"/v1:3" {
		t.Errorf("ID %s", got)
	}
	if got, err := r.Embed(t.Context(), Document, nil); err != nil || len(got) != 0 || e.count() != 1 {
		t.Errorf("nothing: %v, %v after %d requests", got, err, e.count())
	}
}

func TestOpenAIWithoutKeySendsNone(t *testing.T) {
	e := listen(t, good)
	r, _ := dial(t, e, OpenAI{}, io.Discard)
	must.Get(r.Embed(t.Context(), Query, []string{"a"}))(t)
	if got := e.headers[0]["Authorization"]; got != nil {
		t.Errorf("authorization: %q", got)
	}
	if got := e.requests[0].Model; got != DefaultOpenAIModel {
		t.Errorf("model %s", got)
	}
}

// No request is larger than any provider takes, and no text is lost.
func TestOpenAIBatches(t *testing.T) {
	const wide = "漢" // three bytes
	tests := []struct {
		name     string
		texts    []string
		requests int
	}{
		{"many short", slices.Repeat([]string{"x"}, 2*maxTexts+1), 3},
		{"long", slices.Repeat([]string{strings.Repeat("y", MaxText+500)}, 50), 2},
		{"one, cut between characters", []string{strings.Repeat(wide, MaxText)}, 1},
		{"one, no UTF-8", []string{strings.Repeat("\xffx", MaxText)}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := listen(t, good)
			r, _ := dial(t, e, OpenAI{}, io.Discard)
			got, err := r.Embed(t.Context(), Document, tt.texts)
			if err != nil || len(got) != len(tt.texts) {
				t.Fatalf("%d vectors for %d texts: %v", len(got), len(tt.texts), err)
			}
			if len(e.requests) != tt.requests {
				t.Errorf("%d requests, want %d", len(e.requests), tt.requests)
			}
			whole, sent := strings.ToValidUTF8(tt.texts[0], "\ufffd"), 0
			for _, in := range e.requests {
				size := 0
				for _, text := range in.Input {
					if len(text) > MaxText || len(text) <= min(len(whole)-1, MaxText-utf8.UTFMax) || !strings.HasPrefix(whole, text) {
						t.Fatalf("sent a text of %d bytes", len(text))
					}
					size += len(text)
				}
				if sent += len(in.Input); size > maxRequest || len(in.Input) > maxTexts {
					t.Errorf("a request of %d texts, %d bytes", len(in.Input), size)
				}
			}
			if sent != len(tt.texts) {
				t.Errorf("%d texts sent, want %d", sent, len(tt.texts))
			}
		})
	}
}

func body(text string) func(http.ResponseWriter, request, int) {
	return func(w http.ResponseWriter, _ request, _ int) { _, _ = io.WriteString(w, text) }
}

// An answer with status 200 that is not one sound vector for each text is an
// error that says why, and is not asked for again.
func TestOpenAIBadAnswers(t *testing.T) {
	tests := []struct {
		name, body, want string
	}{
		{"an error", `{"error": {"message": "model not loaded"}}`, "model not loaded"},
		{"an error as text", `{"error": "out of memory", "data": []}`, "out of memory"},
		{"a page", `<html>welcome</html>`, "most end with /v1"},
		{"nothing", ``, "most end with /v1"},
		{"another API", `{"embedding": [1, 0]}`, "0 vectors for 2 texts"},
		{"too few", `{"data": [{"index": 0, "embedding": [1, 0]}]}`, "1 vectors for 2 texts"},
		{"too many", `{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1]}, {"index": 2, "embedding": [1]}]}`, "3 vectors for 2 texts"},
		{"a duplicate", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 0, "embedding": [1, 0]}]}`, "two vectors for text 0"},
		{"an index beyond", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 2, "embedding": [1, 0]}]}`, "a vector for text 2 of 2"},
		{"an index below", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": -1, "embedding": [1, 0]}]}`, "a vector for text -1 of 2"},
		{"no index", `{"data": [{"embedding": [1, 0]}, {"index": 1, "embedding": [1, 0]}]}`, "vector 0 of the answer does not say for which text"},
		{"no vector", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 1}]}`, "no vector for text 1"},
		{"a null vector", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": null}]}`, "no vector for text 1"},
		{"an empty vector", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": []}]}`, "the vector of text 1 is empty"},
		{"a zero vector", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [0, 0]}]}`, "the vector of text 1 is zero"},
		{"null numbers", `{"data": [{"index": 0, "embedding": [1, null]}, {"index": 1, "embedding": [1, 0]}]}`, "the vector of text 0 is not finite"},
		{"NaN", `{"data": [{"index": 0, "embedding": [1, NaN]}, {"index": 1, "embedding": [1, 0]}]}`, "invalid character 'N'"},
		{"too large for a float", `{"data": [{"index": 0, "embedding": [1e39]}, {"index": 1, "embedding": [1]}]}`, "number 1e39"},
		{"base64", `{"data": [{"index": 0, "embedding": "AACAPwAAAAA="}, {"index": 1, "embedding": "AACAPwAAAAA="}]}`, "no list of numbers"},
		{"two dimensions", `{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [1, 0, 0]}]}`, "has 3 dimensions, not 2"},
		{"larger than memory", strings.Repeat(" ", maxAnswer+1), "larger than 32768 KiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := listen(t, body(tt.body))
			r, _ := dial(t, e, OpenAI{Model: "m"}, io.Discard)
			got, err := r.Embed(t.Context(), Document, []string{"a", "b"})
			if err == nil {
				t.Fatalf("accepted: %v", got)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "embed with m at "+e.URL) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
			if n := e.count(); n != 1 && n != 2 { // the second one looks whether a text is at fault
				t.Errorf("%d requests", n)
			}
		})
	}
}

// The dimension of the first vector, or the one that was asked for, is that of
// all.
func TestOpenAIKeepsItsDimension(t *testing.T) {
	grows := func(w http.ResponseWriter, _ request, n int) {
		_, _ = fmt.Fprintf(w, `{"data": [{"index": 0, "embedding": [1%s]}]}`, strings.Repeat(",0", n))
	}
	r, _ := dial(t, listen(t, grows), OpenAI{}, io.Discard)
	must.Get(r.Embed(t.Context(), Document, []string{"a"}))(t)
	if _, err := r.Embed(t.Context(), Query, []string{"a"}); err == nil || !strings.Contains(err.Error(), "has 3 dimensions, not 2") {
		t.Errorf("another dimension than before: %v", err)
	}
	r, _ = dial(t, listen(t, grows), OpenAI{Dimensions: 5}, io.Discard)
	if _, err := r.Embed(t.Context(), Document, []string{"a"}); err == nil || !strings.Contains(err.Error(), "has 2 dimensions, not 5") {
		t.Errorf("another dimension than asked for: %v", err)
	}
}

const apiError = `{"error": {"message": "no, %s", "type": "t", "code": "c"}}`

// What may be better in a moment is tried again, what cannot be is not; and no
// message or log shows the key, whatever the server says.
func TestOpenAIRepeats(t *testing.T) {
	status := func(code int, text string) func(http.ResponseWriter, request, int) {
		return func(w http.ResponseWriter, _ request, _ int) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "%s", key))
		}
	}
	tests := []struct {
		name   string
		answer func(http.ResponseWriter, request, int)
		role   Role
		tries  int
		want   string
	}{
		{"bad request", status(400, apiError), Document, 1, "status 400 Bad Request: no, [key]"},
		{"bad key", status(401, apiError), Document, 1, "no, [key] (check OPENAI_API_KEY)"},
		{"forbidden", status(403, "{}"), Document, 1, "status 403 Forbidden: {} (check OPENAI_API_KEY)"},
		{"no such model", status(404, apiError), Document, 1, "(check the model, and the base URL: most end with /v1)"},
		{"no quota, as type", status(429, `{"error": {"message": "%s", "type": "insufficient_quota", "code": 7}}`), Document, 1, "no quota left"},
		{"no quota, as code", status(429, `{"error": {"message": "%s", "type": "t", "code": "insufficient_quota"}}`), Document, 1, "no quota left"},
		{"moved", func(w http.ResponseWriter, _ request, _ int) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(301)
		}, Document, 1, "status 301: the endpoint has moved"},
		{"too many requests", status(429, apiError), Document, maxTries, "status 429 Too Many Requests: no, [key]"},
		{"timeout", status(408, ""), Document, maxTries, "status 408 Request Timeout"},
		{"broken", status(500, apiError), Document, maxTries, "status 500 Internal Server Error: no, [key]"},
		{"a page of a gateway", status(502, "<p>%s\n\t"+strings.Repeat("sorry ", 1000)), Document, maxTries, "status 502 Bad Gateway: <p>[key] sorry"},
		{"an error without message", status(503, `{"error": {}}`), Document, maxTries, `status 503 Service Unavailable: {"error": {}}`},
		{"cut", func(w http.ResponseWriter, _ request, _ int) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"data`)
		}, Document, maxTries, "unexpected EOF"},
		{"hung up", func(w http.ResponseWriter, _ request, _ int) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, key+"\r\n\r\n")
			_ = conn.Close()
		}, Document, maxTries, "malformed HTTP"},
		{"a query does not wait", status(503, apiError), Query, 1, "status 503"},
		{"twice, then well", func(w http.ResponseWriter, in request, n int) {
			if n < 3 {
				status(503, apiError)(w, in, n)
				return
			}
			good(w, in, n)
		}, Document, 3, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			e := listen(t, tt.answer)
			r, waits := dial(t, e, OpenAI{APIKey: key}, &log)
			_, err := r.Embed(t.Context(), tt.role, []string{"a"})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
			n := e.count()
			if tt.role == Document && errors.As(err, new(ofText)) {
				n-- // one looks whether a text is at fault
			}
			if n != tt.tries || len(*waits) != tt.tries-1 {
				t.Errorf("%d requests and %d waits, want %d requests", e.count(), len(*waits), tt.tries)
			}
			for i, d := range *waits {
				if low := 250 * time.Millisecond << i; d < low || d > 3*low {
					t.Errorf("wait %d: %v, want about %v", i, d, 2*low)
				}
			}
			if text := fmt.Sprint(err) + log.String(); strings.Contains(text, key) || len(text) > maxTries*1200 {
				t.Errorf("the key is out, or a message is too long:\n%s", text)
			}
			if lines := strings.Count(log.String(), "\n"); lines != len(*waits) {
				t.Errorf("%d lines of log for %d waits:\n%s", lines, len(*waits), log.String())
			}
		})
	}
}

// A text that is refused costs itself, and is not sent again.
func TestOpenAIRefusesOneText(t *testing.T) {
	for _, refuse := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"data": [{"index": 0, "embedding": [0, 0, 0]}]}`)
		},
	} {
		e := listen(t, func(w http.ResponseWriter, in request, n int) {
			if i := slices.Index(in.Input, "bad"); i < 0 {
				good(w, in, n)
			} else if len(in.Input) > 1 {
				w.WriteHeader(http.StatusBadRequest)
			} else {
				refuse(w)
			}
		})
		var log bytes.Buffer
		r, _ := dial(t, e, OpenAI{Model: "m"}, &log)
		texts := []string{"a", "bb", "bad", "dddd", "eeeee"}
		for range 2 {
			got, err := r.Embed(t.Context(), Document, texts)
			if err != nil || len(got) != len(texts) {
				t.Fatalf("%v, %v", got, err)
			}
			for i, vector := range got {
				if (vector == nil) != (texts[i] == "bad") {
					t.Errorf("%s has %v", texts[i], vector)
				}
			}
		}
		if n := strings.Count(log.String(), "a text is refused"); n != 1 {
			t.Errorf("said %d times:\n%s", n, log.String())
		}
		if _, err := r.Embed(t.Context(), Query, []string{"bad"}); err == nil {
			t.Error("a query is not told")
		}
	}
}

func TestOpenAIHonoursRetryAfter(t *testing.T) {
	busy := func(after string) func(http.ResponseWriter, request, int) {
		return func(w http.ResponseWriter, in request, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", after)
				w.WriteHeader(429)
				return
			}
			good(w, in, n)
		}
	}
	r, waits := dial(t, listen(t, busy("17")), OpenAI{}, io.Discard)
	if _, err := r.Embed(t.Context(), Document, []string{"a"}); err != nil || !slices.Equal(*waits, []time.Duration{17 * time.Second}) {
		t.Errorf("waits %v, error %v", *waits, err)
	}
	e := listen(t, busy("3600"))
	r, waits = dial(t, e, OpenAI{}, io.Discard)
	if _, err := r.Embed(t.Context(), Document, []string{"a"}); err == nil || len(*waits) > 0 || e.count() != 1 {
		t.Errorf("an hour: waits %v, %d requests, error %v", *waits, e.count(), err)
	}
	e = listen(t, busy("30"))
	r, waits = dial(t, e, OpenAI{}, io.Discard)
	if _, err := r.Embed(soon{t.Context()}, Document, []string{"a"}); err == nil || len(*waits) > 0 || e.count() != 1 {
		t.Errorf("longer than the caller has: waits %v, %d requests, error %v", *waits, e.count(), err)
	}
}

// soon is a context whose deadline is near, and never comes.
type soon struct{ context.Context }

func (soon) Deadline() (time.Time, bool) { return time.Now().Add(29 * time.Second), true }

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"5":                             5 * time.Second,
		"1.5":                           1500 * time.Millisecond,
		"-5":                            0,
		"NaN":                           0,
		"9999999999999999999999":        24 * time.Hour,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0,
		"soon":                          0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: got %v, want %v", header, got, want)
		}
	}
}

// The context ends a request and a wait, and the error is the context's.
func TestOpenAIEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := listen(t, func(w http.ResponseWriter, _ request, n int) {
		if n == 1 {
			w.WriteHeader(503)
			return
		}
		cancel()
		<-ctx.Done()
	})
	r, waits := dial(t, e, OpenAI{}, io.Discard)
	if _, err := r.Embed(ctx, Document, []string{"a"}); !errors.Is(err, context.Canceled) || len(*waits) != 1 {
		t.Errorf("during a request: %v", err)
	}
	e = listen(t, func(w http.ResponseWriter, _ request, _ int) { w.WriteHeader(503) })
	r, _ = dial(t, e, OpenAI{}, io.Discard)
	r.wait = func(ctx context.Context, d time.Duration) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return wait(ctx, d)
	}
	if _, err := r.Embed(t.Context(), Document, []string{"a"}); !errors.Is(err, context.Canceled) || e.count() != 1 {
		t.Errorf("during a wait: %v", err)
	}
	if err := wait(t.Context(), time.Nanosecond); err != nil {
		t.Errorf("a wait to its end: %v", err)
	}
}

func TestOpenAIConcurrently(t *testing.T) {
	r, _ := dial(t, listen(t, good), OpenAI{}, io.Discard)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			text := strings.Repeat("x", i+1)
			got, err := r.Embed(t.Context(), Query, []string{text})
			if err != nil || math.Abs(float64(got[0][0]/got[0][1])-float64(i+1)) > 1e-3 {
				t.Errorf("%s: %v, %v", text, got, err)
			}
		})
	}
	all.Wait()
}

// A model that reads few tokens gets as much as it can read, and its vectors are
// kept apart from those of whole texts.
func TestOpenAIMaxBytes(t *testing.T) {
	e := listen(t, good)
	whole, _ := dial(t, e, OpenAI{}, io.Discard)
	cut, _ := dial(t, e, OpenAI{MaxBytes: 100}, io.Discard)
	must.Get(cut.Embed(t.Context(), Document, []string{strings.Repeat("x", 500)}))(t)
	if n := len(e.requests[0].Input[0]); n != 100 {
		t.Errorf("%d bytes were sent, want 100", n)
	}
	if cut.ID() == whole.ID() {
		t.Errorf("both are %s", cut.ID())
	}
}
