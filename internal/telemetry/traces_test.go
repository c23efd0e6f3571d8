package telemetry_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"toolfinch/internal/await"
	"toolfinch/internal/collector"
	"toolfinch/internal/must"
	"toolfinch/internal/telemetry"
)

// openTraces opens traces in an environment that has these OTEL_ variables and no others.
func openTraces(t *testing.T, variables ...string) (*telemetry.Traces, *await.Log) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, value) // which has it restored
			os.Unsetenv(name)
		}
	}
	for _, pair := range variables {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	log := &await.Log{}
	return telemetry.OpenTraces(t.Context(), "1.2.3", slog.New(slog.NewTextHandler(log, nil))), log
}

// request makes the span of one request of a tool.
func request(t *telemetry.Traces, name string) {
	_, span := telemetry.Serve(t.On(context.Background()), telemetry.Message{
		Method: "tools/call", ID: json.RawMessage(`1`), Params: json.RawMessage(`{"name":"` + name + `"}`),
	})
	span.Result(nil)
}

func TestTheEnvironmentSaysWhetherThereAreTraces(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for _, test := range []struct {
		name      string
		variables []string
		on        bool
		says      string // what the log has
	}{
		{"nothing is asked for", nil, false, ""},
		{"an endpoint", []string{endpoint}, true, "traces are sent"},
		{"one of traces alone", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces"}, true, "traces are sent"},
		{"the exporter", []string{"OTEL_TRACES_EXPORTER=otlp"}, true, "traces are sent"},
		{"an empty variable is none", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_TRACES_EXPORTER="}, false, ""},
		{"no exporter", []string{endpoint, "OTEL_TRACES_EXPORTER=none"}, false, ""},
		{"switched off", []string{endpoint, "OTEL_SDK_DISABLED=True"}, false, ""},
		{"another exporter", []string{endpoint, "OTEL_TRACES_EXPORTER=zipkin"}, false, "OTEL_TRACES_EXPORTER names no exporter that is known here"},
		{"gRPC", []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, false, "set it to http/protobuf"},
		{"gRPC, but not of traces", []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}, true, "traces are sent"},
		// Of what cannot be read nothing is shown.
		{"a sampler that there is not", []string{endpoint, "OTEL_TRACES_SAMPLER=hunter2"}, true, "unsupported sampler"},
		{"the share of a sampler", []string{endpoint, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=hunter2"}, true, "parsing sampler argument"},
		{"a propagator that there is not", []string{endpoint, "OTEL_PROPAGATORS=hunter2,tracecontext"}, true, "OTEL_PROPAGATORS has unknown names"},
		{"an attribute without a name", []string{endpoint, "OTEL_RESOURCE_ATTRIBUTES=team=a,hunter2"}, true, "OTEL_RESOURCE_ATTRIBUTES cannot be read whole"},
		{"an attribute with a bad escape", []string{endpoint, "OTEL_RESOURCE_ATTRIBUTES=team=hunter2%hunter2"}, true, "invalid URL escape"},
		{"a number", []string{endpoint, "OTEL_BSP_MAX_QUEUE_SIZE=hunter2"}, true, "OTEL_BSP_MAX_QUEUE_SIZE: Got invalid value"},
		{"a certificate where its file should be", []string{endpoint, "OTEL_EXPORTER_OTLP_CERTIFICATE=hunter2"}, false, "OTEL_EXPORTER_OTLP_CERTIFICATE: no such file"},
		{"a key where its file should be", []string{endpoint, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=hunter2", "OTEL_EXPORTER_OTLP_CLIENT_KEY=hunter2"}, false, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: no such file"},
		{"headers", []string{endpoint, "OTEL_EXPORTER_OTLP_HEADERS=hunter2"}, true, "OTEL_EXPORTER_OTLP_HEADERS has a header that cannot be read"},
		{"an endpoint that cannot be read", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://hunter2:hunter2@[::1"}, false, "OTEL_EXPORTER_OTLP_ENDPOINT is no http:// or https:// URL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			traces, log := openTraces(t, test.variables...)
			if on := traces != nil; on != test.on || !strings.Contains(log.String(), test.says) || test.says == "" && log.String() != "" {
				t.Errorf("traces: %t; log:\n%s", on, log)
			}
			if strings.Contains(log.String(), "hunter2") {
				t.Errorf("the log has a secret:\n%s", log)
			}
			if err := traces.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSpansArriveWithWhatTheEnvironmentSays(t *testing.T) {
	c := collector.New(t)
	traces, log := openTraces(t, append(c.Environment(), "OTEL_SERVICE_NAME=front", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
		"OTEL_EXPORTER_OTLP_HEADERS=x-key=hunter2", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip")...)
	request(traces, "echo")
	must.Do(t, traces.Close(t.Context()))
	spans := c.Spans()
	if len(spans) != 1 || spans[0].Name != "tools/call echo" || spans[0].Kind != "SERVER" {
		t.Fatalf("spans: %+v", spans)
	}
	for key, want := range map[string]string{
		"service.name": "front", "service.version": "1.2.3", "deployment.environment.name": "test", "telemetry.sdk.language": "go",
	} {
		if got := spans[0].Resource[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if spans[0].Resource["service.instance.id"] == "" {
		t.Error("the process has no ID")
	}
	if _, header := c.Asked(); header.Get("X-Key") != "hunter2" || header.Get("Content-Encoding") != "gzip" {
		t.Errorf("the headers are %v", header)
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has a secret:\n%s", log)
	}
}

func TestTheSamplerOfTheEnvironment(t *testing.T) {
	c := collector.New(t)
	traces, _ := openTraces(t, append(c.Environment(), "OTEL_TRACES_SAMPLER=always_off")...)
	request(traces, "echo")
	must.Do(t, traces.Close(t.Context()))
	if spans := c.Spans(); len(spans) != 0 {
		t.Errorf("spans: %+v", spans)
	}
}

// A collector that is away is logged when it goes and when it is back; it delays nobody.
func TestACollectorThatIsAway(t *testing.T) {
	c := collector.New(t)
	c.Answer(http.StatusTeapot) // which is not tried again
	traces, log := openTraces(t, c.Environment()...)
	asked := func(n int) func() bool { return func() bool { got, _ := c.Asked(); return got >= n } }
	for n := range 5 {
		request(traces, "echo")
		await.True(t, asked(n+1))
	}
	await.Contains(t, log.String, "traces are not delivered")
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "418") {
		t.Errorf("the log has\n%s", got)
	}
	c.Answer(0)
	request(traces, "echo")
	await.Contains(t, log.String, "traces are delivered again")
	if !strings.Contains(log.String(), "spans_lost=5") || traces.Lost() != 5 || len(c.Spans()) != 1 {
		t.Errorf("%d spans have arrived, %d were lost; the log has\n%s", len(c.Spans()), traces.Lost(), log)
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// What another try does not mend is told at once, not when the time for tries has run out.
func TestACollectorThatIsNotTriedAgain(t *testing.T) {
	plain, secured := httptest.NewServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	defer plain.Close()
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	defer secured.Close()
	for name, test := range map[string]struct{ endpoint, says string }{
		"a host that there is not":  {"http://no..host", "no such host"}, // no resolver asks for an empty label
		"a certificate of a nobody": {secured.URL, "certificate signed by unknown authority"},
		"no TLS where https is":     {"https://" + plain.Listener.Addr().String(), "HTTP response to HTTPS client"},
	} {
		t.Run(name, func(t *testing.T) {
			traces, logged := openTraces(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+test.endpoint, "OTEL_BSP_SCHEDULE_DELAY=20")
			request(traces, "echo")
			await.Contains(t, logged.String, test.says)
			if err := traces.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The end of a process waits for a collector as long as it was told to, and leaves nothing
// running.
func TestTheEndDoesNotWaitForACollector(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, endpoint := range map[string]string{
		"that says nothing": "http://" + silent.Addr().String() + "/hunter2", "that there is not": "http://127.0.0.1:1/hunter2",
		"with a key in its path": "http://127.0.0.1:1/v1/key:hunter2/v1/traces", "with a key in its query": "http://127.0.0.1:1?token=hunter2", "with a password": "http://me:hunter2@127.0.0.1:1",
	} {
		t.Run(name, func(t *testing.T) {
			await.NoLeak(t, func() {
				traces, log := openTraces(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
				for range 10_000 { // more than wait
					request(traces, "echo")
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // the time is over
				_ = traces.Close(ctx)
				if got := log.String(); !strings.Contains(got, "spans_lost=") || strings.Contains(got, "hunter2") || strings.Count(got, "level=WARN") > 2 {
					t.Errorf("the log has\n%s", got)
				}
			}, "go.opentelemetry.io/")
		})
	}
}

// A collector that restarts loses nothing, and is not logged.
func TestACollectorThatRestarts(t *testing.T) {
	arrived := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{} }))
	server.Listener.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	traces, log := openTraces(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+listener.Addr().String(), "OTEL_BSP_SCHEDULE_DELAY=20")
	request(traces, "echo")
	conn, err := listener.Accept() // a try that nobody answers
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	await.Value(t, arrived)
	if err := traces.Close(t.Context()); err != nil || strings.Contains(log.String(), "WARN") {
		t.Errorf("%v; the log has\n%s", err, log)
	}
}

// What is sent in the place of the context of a client leaves every other byte as it was.
func TestInject(t *testing.T) {
	c := collector.New(t)
	traces := telemetry.NewTraces(c.Provider(sdktrace.AlwaysSample()), false)
	ctx, span := traces.Ask(t.Context(), telemetry.Message{Method: "tools/call"}, &telemetry.Peer{Pipe: true})
	parent := string(span.Inject(ctx, json.RawMessage(`{}`), nil))
	parent = parent[strings.Index(parent, `"traceparent"`) : len(parent)-2]
	for sent, want := range map[string]string{
		`{"a":1e400, "b":"\u003c"}`:                             `{"_meta":{PARENT},"a":1e400, "b":"\u003c"}`,
		`{"a":1, "_meta": {"x":1.0 , "y":[ 1 ]} , "b":2}`:       `{"a":1, "_meta": {PARENT,"x":1.0,"y":[ 1 ]} , "b":2}`,
		`{"_meta":{"traceparent":"00-1","traceparent":"00-2"}}`: `{"_meta":{PARENT}}`,
		`{"_meta":{"baggage":"k=v","tracestate":"a=b","c":1}}`:  `{"_meta":{PARENT,"c":1}}`,
		`{"_meta":"odd"}`: `{"_meta":"odd"}`,
	} {
		want = strings.ReplaceAll(want, "PARENT", parent)
		if got := string(span.Inject(ctx, json.RawMessage(sent), nil)); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", sent, got, want)
		}
	}
	if got, want := string(span.Inject(ctx, nil, nil)), `{"_meta":{`+parent+`}}`; got != want {
		t.Errorf("no params become %s, want %s", got, want)
	}
	span.Result(nil)
}

// What is read of and written into requests is what OTEL_PROPAGATORS says.
func TestThePropagatorsOfTheEnvironment(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	sent := json.RawMessage(`{"_meta":{"traceparent":"00-` + trace + `-b7ad6b7169203331-01","baggage":"k=v"}}`)
	for _, test := range []struct {
		propagators              string
		trace, baggage, rewrites bool // what of the client's a server gets, and whether under a span of ours
	}{
		{"", true, false, true},
		{"tracecontext", true, false, true},
		{"tracecontext,baggage", true, true, true},
		{"none", true, true, false}, // as it came
	} {
		t.Run(test.propagators, func(t *testing.T) {
			c := collector.New(t)
			traces, _ := openTraces(t, append(c.Environment(), "OTEL_PROPAGATORS="+test.propagators)...)
			ctx, served := telemetry.Serve(traces.On(t.Context()), telemetry.Message{Method: "tools/call", Params: sent})
			ctx, asked := traces.Ask(ctx, telemetry.Message{Method: "tools/call", Params: sent}, &telemetry.Peer{Pipe: true})
			got := string(asked.Inject(ctx, sent, nil))
			asked.Result(nil)
			served.Result(nil)
			must.Do(t, traces.Close(t.Context()))
			if strings.Contains(got, trace) != test.trace || strings.Contains(got, "k=v") != test.baggage || (got != string(sent)) != test.rewrites {
				t.Errorf("a server gets %s", got)
			}
			for _, span := range c.Spans() {
				if (span.Trace == trace) != test.rewrites {
					t.Errorf("%s %q is in the trace %s", span.Kind, span.Name, span.Trace)
				}
			}
		})
	}
}

// The user and the query of a URI may be secret: no span has them.
func TestSpansHaveNoSecretsOfURIs(t *testing.T) {
	c := collector.New(t)
	traces := telemetry.NewTraces(c.Provider(sdktrace.AlwaysSample()), false)
	_, span := telemetry.Serve(traces.On(t.Context()), telemetry.Message{Method: "resources/read", Params: json.RawMessage(`{"uri":"db://me:hunter2@host/rows?token=hunter2"}`)})
	span.Result(nil)
	for _, got := range c.Spans() {
		if uri := got.Attributes["mcp.resource.uri"]; uri != "db://host/rows" {
			t.Errorf("a span has the URI %q", uri)
		}
	}
}

// Strangers choose names and IDs: what is kept of them is bounded.
func TestWhatStrangersWriteIsBounded(t *testing.T) {
	c := collector.New(t)
	traces := telemetry.NewTraces(c.Provider(sdktrace.AlwaysSample()), false)
	long := strings.Repeat("x", 100_000)
	_, span := telemetry.Serve(traces.On(t.Context()), telemetry.Message{
		Method: "resources/read", ID: json.RawMessage(`"` + long + `"`), Version: long, Params: json.RawMessage(`{"uri":"` + long + `\ud800","name":"` + long + `"}`),
	})
	span.Result(nil)
	request(traces, long)
	for _, got := range c.Spans() {
		if len(got.Name) > 300 {
			t.Errorf("the name of a span has %d bytes", len(got.Name))
		}
		for key, value := range got.Attributes {
			if len(value) > 300 {
				t.Errorf("%s has %d bytes", key, len(value))
			}
		}
	}
}

// Without traces, a request costs no memory.
func TestNoTracesCostNothing(t *testing.T) {
	ctx := t.Context()
	params, header := json.RawMessage(`{"name":"echo"}`), http.Header{}
	var traces *telemetry.Traces
	if n := testing.AllocsPerRun(100, func() {
		on := telemetry.As(traces.On(ctx), ctx)
		on, span := telemetry.Serve(on, telemetry.Message{Method: "tools/call", Params: params})
		on, asked := traces.Ask(on, telemetry.Message{Method: "tools/call", Params: params}, nil)
		_ = asked.Inject(on, params, header)
		asked.Spoke("HTTP/1.1")
		asked.Result(params)
		span.Answered(on, params)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a collector says while it takes spans, or does not yet.
func TestWhatACollectorAnswers(t *testing.T) {
	partial := []byte{10, 10, 8, 3, 18, 6, 't', 'o', 'o', ' ', 'o', 'l'}
	for _, test := range []struct {
		name    string
		answers []func(http.ResponseWriter)
		says    string
	}{
		{"it is busy for a second", []func(http.ResponseWriter){
			func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			func(http.ResponseWriter) {},
		}, ""},
		{"it is busy for longer than its spans are kept", []func(http.ResponseWriter){
			func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "9999999999")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = w.Write([]byte("quota"))
			},
		}, "the collector answered 429 Too Many Requests: quota"},
		{"it leaves some out", []func(http.ResponseWriter){
			func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/x-protobuf")
				_, _ = w.Write(partial)
			},
		}, "the collector took all but 3 spans: too ol"},
		{"it sends the spans, and their headers, somewhere else", []func(http.ResponseWriter){
			func(w http.ResponseWriter) {
				w.Header().Set("Location", "http://127.0.0.1:1/hunter2")
				w.WriteHeader(http.StatusTemporaryRedirect)
				_, _ = w.Write([]byte(`<a href="/hunter2">`))
			},
		}, "the collector answered 307 Temporary Redirect: redirects are not followed"},
		{"it repeats where it was asked", []func(http.ResponseWriter){
			func(w http.ResponseWriter) {
				http.Error(w, "nothing is at /key:hunter2/v1/traces?token=hunter2 or http://me:hunter2@host/hunter2:2", http.StatusNotFound)
			},
		}, "the collector answered 404 Not Found: nothing is at [...] or http://host"},
		{"it answers what is no protocol buffer", []func(http.ResponseWriter){
			func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "application/x-protobuf")
				_, _ = w.Write([]byte("\xff\xff\xff"))
			},
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/key:hunter2/v1/traces" || r.Header.Get("User-Agent") != "toolfinch/1.2.3" {
					t.Errorf("%s from %s", r.URL, r.Header.Get("User-Agent"))
				}
				test.answers[min(int(asked.Add(1)), len(test.answers))-1](w)
			}))
			defer server.Close()
			file := filepath.Join(t.TempDir(), "ca.pem")
			must.Do(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
			traces, log := openTraces(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL+"/key:hunter2/?token=hunter2", "OTEL_EXPORTER_OTLP_CERTIFICATE="+file)
			request(traces, "echo")
			must.Do(t, traces.Close(t.Context()))
			if int(asked.Load()) != len(test.answers) || !strings.Contains(log.String(), test.says) || test.says == "" && strings.Contains(log.String(), "WARN") || strings.Contains(log.String(), "hunter2") {
				t.Errorf("asked %d times; the log has\n%s", asked.Load(), log)
			}
		})
	}
}
