package proxy

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"toolfinch/internal/identity"
)

// TestStrangersDoNotFillTheAuditLog: what they are refused has so many lines, and then a
// number. What somebody does who is known has a line each.
func TestStrangersDoNotFillTheAuditLog(t *testing.T) {
	s := &strangers{limit: rate.NewLimiter(rate.Every(time.Hour), 3)}
	lines := 0
	for range 10 {
		if s.admits(&identity.Event{Kind: identity.EventRefused}) {
			lines++
		}
	}
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
	if !s.admits(&identity.Event{Kind: identity.EventRefused, Principal: "key|ci"}) || !s.admits(&identity.Event{Kind: identity.EventLogin}) {
		t.Error("what is not a stranger's has no line")
	}
	s.limit.SetBurstAt(time.Now(), 10)
	s.limit.SetLimitAt(time.Now(), rate.Inf)
	e := identity.Event{Kind: identity.EventRefused}
	if !s.admits(&e) || e.Details["more"] != "7" {
		t.Errorf("the next line: %+v", e)
	}
}
