package client

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// ProgressFunc is told how far a call is, from one goroutine and before the call
// returns, unless the context of the call ends meanwhile. total is 0 when the
// server does not say it, message "". If the function is slow, the oldest reports
// are dropped.
type ProgressFunc func(progress, total float64, message string)

type progressKey struct{}

// OnProgress returns a context whose calls report their progress to f.
func OnProgress(ctx context.Context, f ProgressFunc) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// backlog bounds the reports of a call that wait for its ProgressFunc.
const backlog = 64

type report struct {
	progress, total float64
	message         string
}

// sinks are the channels of calls with a ProgressFunc, by progress token.
type sinks struct {
	mu   sync.Mutex // guards what follows and the sending to and closing of channels; never held over a ProgressFunc
	last uint64
	by   map[string]chan report
}

// tokens begin with prefix, so that they are told from those that callers chose.
const prefix = "proxyclient-"

// take gives a notification of progress to its call, and reports whether it was
// one with a token of open. What comes for a call that is over is dropped.
func (s *sinks) take(n mcp.JSONRPCNotification) bool {
	if n.Method != "notifications/progress" {
		return false
	}
	fields := n.Params.AdditionalFields
	token, _ := fields["progressToken"].(string)
	if !strings.HasPrefix(token, prefix) {
		return false
	}
	var r report
	r.progress, _ = fields["progress"].(float64)
	r.total, _ = fields["total"].(float64)
	r.message, _ = fields["message"].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	sink, calling := s.by[token]
	for calling {
		select {
		case sink <- r:
			return true
		default:
		}
		select {
		case <-sink:
		default:
		}
	}
	return true
}

// open returns a progress token whose reports go to f. end returns after f got all
// of them, or when ctx has ended.
func (s *sinks) open(ctx context.Context, f ProgressFunc) (token string, end func()) {
	sink, done := make(chan report, backlog), make(chan struct{})
	s.mu.Lock()
	s.last++
	token = prefix + strconv.FormatUint(s.last, 10)
	if s.by == nil {
		s.by = map[string]chan report{}
	}
	s.by[token] = sink
	s.mu.Unlock()
	go func() {
		for r := range sink {
			f(r.progress, r.total, r.message)
		}
		close(done)
	}()
	return token, func() {
		s.mu.Lock()
		delete(s.by, token)
		close(sink)
		s.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}
