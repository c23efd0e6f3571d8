package telemetry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"toolfinch/internal/identity"
)

// TextType is the media type of Metrics.Text.
const TextType = "text/plain; version=0.0.4; charset=utf-8"

// Other is the label tool for tools after the first 1,000.
const Other = "__other"

// maxTools bounds the labels tool.
const maxTools = 1000

// Metrics count operations and more for Prometheus. Its methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	calls                             *prometheus.CounterVec
	whole, own, stages                *prometheus.HistogramVec // stages by their names only
	retrievals                        *prometheus.CounterVec
	searches, confident, hybrid, hits *prometheus.CounterVec
	registrations, holds              *prometheus.CounterVec
	starts, events                    *prometheus.CounterVec

	mu    sync.Mutex // guards tools; held for look-ups only
	tools map[[2]string]struct{}
}

// Buckets in seconds. The lowest bucket of the MCP semantic conventions, 10 ms, is above every call of
// a quick server: over stdio it takes 150 us.
var (
	wholeBuckets = []float64{50e-6, 100e-6, 200e-6, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	ownBuckets   = []float64{50e-6, 100e-6, 200e-6, 400e-6, 800e-6, .0016, .0032, .0064, .0125, .025, .05, .1, .25, .5, 1, 5}
)

// NewMetrics returns metrics with nothing counted.
func NewMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), tools: map[[2]string]struct{}{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(vec)
		return vec
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(vec)
		return vec
	}
	m.calls = counter("toolfinch_calls_total", "Calls of tools, reads, prompts and retrievals, with the steps of composite tools and scripts. The tool is empty for resources and for what is not there, "+Other+" beyond the first 1,000.", "kind", "server", "tool", "outcome")
	m.whole = histogram("toolfinch_call_duration_seconds", "How long calls, reads, prompts and retrievals took, from the name that was found to the result.", wholeBuckets, "kind", "server")
	m.own = histogram("toolfinch_overhead_seconds", "The share of toolfinch in that: without the time of servers, and of clients that are waited for.", ownBuckets, "kind")
	m.stages = histogram("toolfinch_stage_duration_seconds", "How long stages of them took: embed, search, fuse, policy, gate, hook, upstream, hold.", ownBuckets, "stage")
	m.retrievals = counter("toolfinch_retrievals_total", "Requests of clients that searched for tools.", "view")
	m.searches = counter("toolfinch_searches_total", "Searches for tools; a retrieval may have several.", "view")
	m.confident = counter("toolfinch_searches_confident_total", "Searches that are likely to have found the right tool.", "view")
	m.hybrid = counter("toolfinch_searches_hybrid_total", "Searches by words and meaning; the others are by words alone.", "view")
	m.hits = counter("toolfinch_search_hits_total", "Tools that searches found.", "view")
	m.registrations = counter("toolfinch_registrations_total", "Changes of what a session is listed.", "view")
	m.holds = counter("toolfinch_holds_total", "Answers that waited for their client to list its tools again, by whether it did in time.", "relisted")
	m.starts = counter("toolfinch_server_starts_total", "Processes of servers that were started.", "server")
	m.events = counter("toolfinch_events_total", "Events that the audit log is for and that are no calls, whether there is one or not.", "event", "outcome")
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Operation counts a finished operation.
func (m *Metrics) Operation(o *Operation) {
	m.calls.WithLabelValues(o.Kind, o.Server, m.tool(o), o.Outcome).Inc()
	m.whole.WithLabelValues(o.Kind, o.Server).Observe(o.Duration.Seconds())
	m.own.WithLabelValues(o.Kind).Observe(o.Own.Seconds())
	for i := range o.Stages {
		s := &o.Stages[i]
		if s.Duration == Unfinished {
			continue
		}
		m.stages.WithLabelValues(s.Name).Observe(s.Duration.Seconds())
		if s.Name == StageHold {
			m.holds.WithLabelValues(strconv.FormatBool(!s.Failed)).Inc()
		}
	}
	if o.Kind == identity.EventRetrieve || o.Retrieval != nil && o.Depth == 0 {
		m.retrievals.WithLabelValues(o.View).Inc()
	}
	if found := o.Retrieval; found != nil {
		m.searches.WithLabelValues(o.View).Add(float64(found.Searches))
		m.confident.WithLabelValues(o.View).Add(float64(found.Confident))
		m.hybrid.WithLabelValues(o.View).Add(float64(found.Hybrid))
		m.hits.WithLabelValues(o.View).Add(float64(found.Hits))
	}
}

// tool is an operation's label tool, "" for URIs and unknown names: their number has no bound.
func (m *Metrics) tool(o *Operation) string {
	name := strings.TrimPrefix(o.Tool, o.Server+".")
	switch {
	case o.Meta:
		name = o.Name
	case o.Kind == identity.EventRead:
		name = ""
	}
	if name == "" {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{o.Server, name}
	if _, known := m.tools[key]; !known {
		if len(m.tools) >= maxTools {
			return Other
		}
		m.tools[key] = struct{}{}
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

// View begins the metrics of a view with 0, so that the first retrieval shows as a change.
func (m *Metrics) View(name string) {
	for _, vec := range []*prometheus.CounterVec{m.retrievals, m.searches, m.confident, m.hybrid, m.hits, m.registrations} {
		vec.WithLabelValues(name)
	}
}

// Registered counts a change of a session's list.
func (m *Metrics) Registered(view string) { m.registrations.WithLabelValues(view).Inc() }

// Started counts a start of a server's process.
func (m *Metrics) Started(server string) { m.starts.WithLabelValues(server).Inc() }

// Event counts an event other than an operation.
func (m *Metrics) Event(e identity.Event) {
	outcome := cmp.Or(e.Outcome, identity.Success)
	m.events.WithLabelValues(e.Kind, outcome).Inc()
}

// Family is a metric that is read, not counted here.
type Family struct {
	Name, Help string
	Counter    bool // otherwise a gauge
	Labels     []string
	Samples    []Sample
}

// Sample is a value of a Family, with its labels' values in order.
type Sample struct {
	Value  float64
	Labels []string
}

// families collects read metrics.
type families []Family

// Describe describes nothing: the metrics differ each time.
func (families) Describe(chan<- *prometheus.Desc) {}

func (all families) Collect(to chan<- prometheus.Metric) {
	for _, f := range all {
		kind := prometheus.GaugeValue
		if f.Counter {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		for _, s := range f.Samples {
			to <- prometheus.MustNewConstMetric(desc, kind, s.Value, s.Labels...)
		}
	}
}

// Text returns all metrics and the read ones, as TextType. shows, unless nil, says whether the reader
// may see a sample with the labels view, server and tool, "" for a missing one.
func (m *Metrics) Text(read []Family, shows func(view, server, tool string) bool) ([]byte, error) {
	beside := prometheus.NewRegistry()
	if err := beside.Register(families(read)); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	all, err := prometheus.Gatherers{m.registry, beside}.Gather()
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range all {
		if shows != nil {
			family.Metric = slices.DeleteFunc(family.Metric, func(one *dto.Metric) bool {
				return !shows(labelOf(one, "view"), labelOf(one, "server"), labelOf(one, "tool"))
			})
		}
		if len(family.Metric) == 0 {
			continue
		}
		if err := encoder.Encode(family); err != nil {
			return nil, fmt.Errorf("metrics: %s: %w", family.GetName(), err)
		}
	}
	return out.Bytes(), nil
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
