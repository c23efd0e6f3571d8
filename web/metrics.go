package web

import (
	"bytes"
	"fmt"
	"strings"

	"toolfinch/limit"
	"toolfinch/upstream"
)

// metricsType is that of the text format of Prometheus.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// metrics answers with what is counted, in the text format of Prometheus.
func (s *server) metrics(q *request) (any, error) {
	var out exposition
	saved := s.house.Savings(q.Context())

	out.family("toolfinch_tools", "gauge", "Tools that can be found in a view now.")
	for _, row := range saved {
		v, err := s.house.View(q.Context(), row.View)
		if err != nil {
			continue // it went meanwhile
		}
		out.sample(int64(v.Catalog.Len()), "view", row.View)
	}

	out.family("toolfinch_servers", "gauge", "Servers by the state that the last exchange with them left.")
	states := map[string]int64{}
	for _, server := range s.house.Upstreams(q.Context()) {
		states[server.State]++
	}
	for _, state := range []upstream.State{upstream.StatePending, upstream.StateReady, upstream.StateLogin, upstream.StateFailed} {
		out.sample(states[string(state)], "state", string(state))
	}

	out.family("toolfinch_dropped_notifications_total", "counter", "Notifications about calls that clients did not get: too long, or read too slowly.")
	for _, server := range s.house.Upstreams(q.Context()) {
		out.sample(server.Dropped, "server", server.Name)
	}

	out.family("toolfinch_sessions_total", "counter", "Sessions of clients since the start.")
	for _, row := range saved {
		out.sample(row.Sessions, "view", row.View)
	}
	out.family("toolfinch_retrievals_total", "counter", "Searches for tools that clients have made since the start.")
	for _, row := range saved {
		s.mu.Lock()
		searches := s.searches[row.View]
		s.mu.Unlock()
		out.sample(row.Retrievals+searches, "view", row.View)
	}
	for _, metric := range []struct {
		name, help string
		counts     func(Saved) []Count
	}{
		{"toolfinch_steps_total", "Steps of models that have read a list since the start (made), and those with every tool listed (all).", func(s Saved) []Count { return s.Steps }},
		{"toolfinch_list_changes_total", "Lists that changed between two steps of a session since the start: at their end (appended) or inside (changed).", func(s Saved) []Count { return s.Changes }},
		{"toolfinch_tokens_total", "Tokens that models have read since the start, as toolfinch savings accounts for them.", func(s Saved) []Count { return s.Tokens }},
	} {
		out.family(metric.name, "counter", metric.help)
		for _, row := range saved {
			for _, count := range metric.counts(row) {
				out.sample(count.N, "view", row.View, "kind", count.Kind)
			}
		}
	}
	accepted, refused := s.house.Admissions()
	out.family("toolfinch_requests_accepted_total", "counter", "Requests over HTTP that were let in since the start, by what proved who makes them.")
	for _, count := range accepted {
		out.sample(count.N, "by", count.Kind)
	}
	out.family("toolfinch_requests_refused_total", "counter", "Requests over HTTP that were not let in since the start, or lacked a scope.")
	for _, count := range refused {
		out.sample(count.N, "reason", count.Kind)
	}
	if denials := s.house.Denials(); len(denials) > 0 {
		out.family("toolfinch_denials_total", "counter", "Calls, prompts and reads that policies denied since the start, by the policy that did; by none where no policy permits them.")
		for _, count := range denials {
			out.sample(count.N, "policy", count.Kind)
		}
	}
	bounds := s.house.Limits()
	for _, metric := range []struct {
		name, kind, help string
		value            func(*limit.Limit) int64
	}{
		{"toolfinch_limit", "gauge", "How much there may be at once of what clients can make grow, by limit.", (*limit.Limit).Max},
		{"toolfinch_limit_used", "gauge", "How much of it there is now.", (*limit.Limit).Used},
		{"toolfinch_limit_hits_total", "counter", "How often the limit was reached since the start.", (*limit.Limit).Hits},
	} {
		out.family(metric.name, metric.kind, metric.help)
		for _, b := range bounds {
			out.sample(metric.value(b), "limit", b.Name())
		}
	}
	if counts, ok := s.house.Audit(); ok {
		for _, metric := range []struct {
			name, kind, help string
			value            int64
		}{
			{"toolfinch_audit_lines_total", "counter", "Lines that the audit log has written since the start.", counts.Written},
			{"toolfinch_audit_queue", "gauge", "Lines that wait to be written.", counts.Queue},
			{"toolfinch_audit_waits_total", "counter", "Calls that waited for room in the audit log since the start.", counts.Waited},
			{"toolfinch_audit_errors_total", "counter", "Writes of the audit log that failed since the start.", counts.Failed},
			{"toolfinch_audit_lost_total", "counter", "Lines that were lost because they could not be written, since the start.", counts.Lost},
		} {
			out.family(metric.name, metric.kind, metric.help)
			out.value(metric.value)
		}
	}
	return document{contentType: metricsType, body: out.text.Bytes()}, nil
}

// exposition is metrics in the text format, version 0.0.4.
type exposition struct {
	text bytes.Buffer
	name string
}

// family begins a metric; the samples that follow are its own.
func (e *exposition) family(name, kind, help string) {
	e.name = name
	fmt.Fprintf(&e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// value adds the value of a metric without labels.
func (e *exposition) value(value int64) { fmt.Fprintf(&e.text, "%s %d\n", e.name, value) }

// sample adds a value with labels: names and values in turn.
func (e *exposition) sample(value int64, labels ...string) {
	e.text.WriteString(e.name)
	before := "{"
	for i := 0; i < len(labels); i += 2 {
		fmt.Fprintf(&e.text, `%s%s="%s"`, before, labels[i], labelEscapes.Replace(labels[i+1]))
		before = ","
	}
	fmt.Fprintf(&e.text, "} %d\n", value)
}
