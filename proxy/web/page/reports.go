package page

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

const (
	maxReport   = 16 << 10 // bytes
	mostAMinute = 10
)

// perMinute bounds how often an event that strangers can cause is logged.
type perMinute struct {
	mu    sync.Mutex // guards since and n
	since time.Time
	n     int
}

func (p *perMinute) admits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.since) > time.Minute {
		p.since, p.n = time.Now(), 0
	}
	p.n++
	return p.n <= mostAMinute
}

// takeReport logs a browser's report of a violation of the Content-Security-Policy. The report may be forged, because
// sending it needs no session.
func (s *Server) takeReport(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReport))
	var sent struct {
		Report struct {
			Directive string `json:"violated-directive"`
			Blocked   string `json:"blocked-uri"`
			Document  string `json:"document-uri"`
		} `json:"csp-report"`
	}
	if err == nil && json.Unmarshal(body, &sent) == nil && s.reports.admits() {
		short := func(text string) string { return printable.Line(rawjson.Clip(text, 200)) }
		s.Log.Warn("page: a browser has blocked something", "directive", short(sent.Report.Directive), "blocked", short(sent.Report.Blocked), "page", short(sent.Report.Document))
	}
	w.WriteHeader(http.StatusNoContent)
}
