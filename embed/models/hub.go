package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	defaultEndpoint = "https://huggingface.co"
	defaultRevision = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
	floating        = "main" // the revision of models that are not pinned

	maxTries     = 5       // in a row without progress
	realProgress = 1 << 20 // bytes that make a try count as progress
	maxRedirects = 10
	maxPause     = time.Minute // whatever Retry-After says
)

// hubPins are the known files of the default model at its revision.
var hubPins = map[string]File{
	weightsFile:   {90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
	tokenizerFile: {466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"},
}

// hub fetches a model from a model hub or a mirror of it.
type hub struct {
	endpoint *url.URL
	token    string
	repo     string
	revision string          // what to ask for: a commit, or floating
	pins     map[string]File // known files; empty unless the revision is pinned
	client   *http.Client
	retry    time.Duration
	stall    time.Duration
	note     func(string)
	elseNPM  string // the advice to use npm, where that is an option
}

func newHub(p place, opts Options) (*hub, error) {
	raw := cmp.Or(strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"), defaultEndpoint)
	endpoint, err := url.Parse(raw)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, errors.New("HF_ENDPOINT is not an http or https URL") // it may hold a password: do not show it
	}
	h := &hub{
		endpoint: endpoint,
		token:    strings.TrimSpace(os.Getenv("HF_TOKEN")),
		repo:     p.repo(),
		revision: floating,
		client:   &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		retry:    cmp.Or(opts.retry, 500*time.Millisecond),
		stall:    cmp.Or(opts.stall, time.Minute),
		note:     opts.Note,
	}
	if p.name == DefaultModel {
		h.revision, h.pins = defaultRevision, hubPins
		h.elseNPM = ", or take it from npm: " + pullCommand(p.name) + " --from npm"
	}
	return h, nil
}

// String names the hub in messages.
func (h *hub) String() string { return h.endpoint.Redacted() }

func (h *hub) fill(ctx context.Context, w *work) error {
	defer h.client.CloseIdleConnections()
	w.goesOn = true
	fixed := h.revision != floating
	if !fixed {
		commit, err := h.commit(ctx)
		if err != nil {
			return err
		}
		if commit != "" {
			h.revision, fixed = commit, true
		}
	}
	if err := w.begin(ctx, h.String()+"/"+h.repo, h.revision, fixed); err != nil {
		return err
	}
	var unchecked []string
	for _, f := range layout {
		if _, ok := w.state.Files[tokenizerFile]; ok && f.name == vocabFile || w.has(ctx, f.name) {
			continue
		}
		checked, err := h.fetch(ctx, w, f)
		if errors.Is(err, errNoFile) && !f.need {
			continue
		}
		if errors.Is(err, errNoFile) {
			return h.lacking(f, err)
		}
		if err != nil {
			return err
		}
		if !checked && f.limit > smallFile {
			unchecked = append(unchecked, f.name)
		}
	}
	if unchecked != nil {
		h.note(fmt.Sprintf("not checked, because %s gives no sha256: %s", h, strings.Join(unchecked, ", ")))
	}
	return nil
}

// lacking returns the error for a file that the hub does not have.
func (h *hub) lacking(f wanted, err error) error {
	if f.name == weightsFile {
		return fmt.Errorf("%s of %s: %w; the weights are read from this file only, choose a model that has it", f.name, h.repo, err)
	}
	return fmt.Errorf("%s of %s: %w; check the name of the model%s", f.name, h.repo, err, h.elseNPM)
}

var (
	errNoFile  = errors.New("not found")
	errStalled = errors.New("nothing was sent for too long")
	errChanged = errors.New("the file has changed since the download began")
)

// permanent marks an error that another try would meet again.
type permanent struct{ error }

func (e permanent) Unwrap() error { return e.error }

// later is an error after which the hub wants a pause.
type later struct {
	error
	pause time.Duration
}

func (e later) Unwrap() error { return e.error }

// again tries until it works, fails for good, or makes no progress any more. try
// returns how many bytes it gained.
func (h *hub) again(ctx context.Context, what string, try func() (int64, error)) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.Multiplier = h.retry, 2
	pauses.Reset()
	for tries := 1; ; tries++ {
		gained, err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if p, ok := errors.AsType[permanent](err); ok {
			return p.error
		}
		if gained >= realProgress {
			tries = 1
			pauses.Reset()
		}
		if tries >= maxTries {
			return fmt.Errorf("%s: %w (tried %d times); set HF_ENDPOINT to a mirror%s", what, err, tries, h.elseNPM)
		}
		pause := pauses.NextBackOff()
		if l, ok := errors.AsType[later](err); ok {
			pause = min(max(pause, l.pause), maxPause)
		}
		h.note(fmt.Sprintf("%s: %v; trying again", what, err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// commit returns the commit of the floating revision, so that all files are of one
// revision; "" if the hub does not say it.
func (h *hub) commit(ctx context.Context) (commit string, err error) {
	file := layout[0].name
	err = h.again(ctx, file, func() (int64, error) {
		x := h.exchange(ctx)
		defer x.end()
		resp, said, err := h.get(x, file, "")
		if err != nil {
			return 0, err
		}
		commit = said.commit
		return 0, resp.Body.Close()
	})
	if errors.Is(err, errNoFile) {
		err = h.lacking(layout[0], err)
	}
	return commit, err
}

// fetch downloads one file. checked is false if its sum is unknown.
func (h *hub) fetch(ctx context.Context, w *work, f wanted) (checked bool, err error) {
	var best int64 // a hub that never goes on and always breaks off makes no progress
	err = h.again(ctx, f.name, func() (gained int64, err error) {
		var size int64
		size, checked, err = h.attempt(ctx, w, f)
		gained = size - best
		best = max(best, size)
		if errors.As(err, new(*fs.PathError)) { // the disk, not the net
			err = permanent{err}
		}
		return gained, err
	})
	return checked, err
}

// attempt downloads the missing part of a file over one connection, and returns the
// size of the file so far.
func (h *hub) attempt(ctx context.Context, w *work, f wanted) (size int64, checked bool, err error) {
	// A part is resumed only if a sum will tell whether it belongs to the same file.
	part, err := w.openPart(ctx, f.name, w.state.Sums[f.name] != "")
	if err != nil {
		return 0, false, err
	}
	offset := part.size
	want, err := h.receive(ctx, w, f, part)
	if err := errors.Join(err, part.close()); err != nil {
		if part.size == 0 || errors.Is(err, errChanged) || errors.Is(err, errTooLarge) {
			err = errors.Join(err, w.drop(f.name))
		}
		return part.size, false, err
	}
	if err := differs(f.name, part.sum(), want); err != nil {
		if err := w.drop(f.name); err != nil {
			return 0, false, err
		}
		if offset > 0 { // of two files, perhaps
			return 0, false, fmt.Errorf("%w: %w", errChanged, err)
		}
		return 0, false, permanent{fmt.Errorf("%w; %s does not have what was published: set HF_ENDPOINT to another mirror%s", err, h, h.elseNPM)}
	}
	if err := w.keep(part.path, f.name, part.sum()); err != nil {
		return 0, false, permanent{errors.Join(err, w.drop(f.name))}
	}
	return part.size, want.SHA256 != "", nil
}

// receive appends the hub's answer to the part, and returns the size and sum of the
// whole file, if known.
func (h *hub) receive(ctx context.Context, w *work, f wanted, part *part) (want File, err error) {
	x := h.exchange(ctx)
	defer x.end()
	ranged := ""
	if part.size > 0 {
		ranged = fmt.Sprintf("bytes=%d-", part.size)
	}
	resp, said, err := h.get(x, f.name, ranged)
	if err != nil {
		return want, err
	}
	defer resp.Body.Close()
	total, err := h.position(resp, part)
	if err != nil {
		return want, err
	}
	want = h.pins[f.name]
	if want.SHA256 == "" {
		want = said.file
	}
	if size := max(total, want.Size); size > f.limit {
		return want, permanent{fmt.Errorf("%s %w: %s, at most %s", f.name, errTooLarge, Bytes(size), Bytes(f.limit))}
	}
	if total > 0 && want.Size > 0 && total != want.Size {
		return want, permanent{fmt.Errorf("%s has %d bytes at %s instead of %d; set HF_ENDPOINT to another mirror%s", f.name, total, h, want.Size, h.elseNPM)}
	}
	if part.size > 0 && want.SHA256 != w.state.Sums[f.name] {
		return want, errChanged
	}
	if f.limit > smallFile && want.SHA256 != "" {
		w.state.Sums[f.name] = want.SHA256
	}
	if err := w.save(); err != nil {
		return want, err
	}
	if part.size > 0 {
		h.note(fmt.Sprintf("%s: going on after %s", f.name, Bytes(part.size)))
	}
	x.body = resp.Body
	err = part.fill(ctx, x, cmp.Or(want.Size, total, f.limit), cmp.Or(total, want.Size))
	switch {
	case errors.Is(err, errTooLarge):
		return want, permanent{err}
	case err != nil:
		return want, err
	case total > 0 && part.size < total:
		return want, io.ErrUnexpectedEOF
	}
	return want, nil
}

// position truncates the part if the answer begins at the start, and returns the
// size of the whole file, 0 if unknown.
func (h *hub) position(resp *http.Response, part *part) (total int64, err error) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return 0, permanent{fmt.Errorf("%s sends %s with Content-Encoding %s, which was not asked for", h, part.name, encoding)}
	}
	switch resp.StatusCode {
	case http.StatusOK: // from the start, asked for or not
		if part.size > 0 {
			h.note(part.name + ": beginning again, because the hub does not go on")
		}
		return max(resp.ContentLength, 0), part.restart()
	case http.StatusPartialContent:
		start, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || start != part.size {
			return 0, errChanged
		}
		return total, nil
	default: // 416: there is nothing after what is here
		return 0, errChanged
	}
}

// contentRange reads "bytes 100-199/200"; total is 0 for "*".
func contentRange(s string) (start, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, size, ok2 := strings.Cut(s, "/")
	first, _, ok3 := strings.Cut(span, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	if size != "*" {
		var bad error
		total, bad = strconv.ParseInt(size, 10, 64)
		err = errors.Join(err, bad)
	}
	return start, total, ok && ok2 && ok3 && err == nil
}

// said is what response headers tell about a file.
type said struct {
	commit string
	file   File // zero where unknown
}

var sumPattern = regexp.MustCompile(`^"?([0-9a-f]{64})"?$`)

// hear reads the headers of one response. Large files are on another host: then the
// hub describes them in X-Linked headers, and the ETag of the other host means
// nothing.
func (s *said) hear(header http.Header, atHub bool) {
	if commit := header.Get("X-Repo-Commit"); s.commit == "" && commitPattern.MatchString(commit) {
		s.commit = commit
	}
	sum := header.Get("X-Linked-ETag")
	if sum == "" && atHub {
		sum = header.Get("ETag")
	}
	if found := sumPattern.FindStringSubmatch(sum); found != nil && s.file.SHA256 == "" {
		s.file.SHA256 = found[1]
		s.file.Size, _ = strconv.ParseInt(header.Get("X-Linked-Size"), 10, 64) // 0 when absent
		s.file.Size = max(s.file.Size, 0)
	}
}

// get requests a file. The token goes only to the hub, and the hub's headers are
// read before a redirect leads elsewhere. The response has status 200, 206 or 416.
func (h *hub) get(x *exchange, file, ranged string) (*http.Response, said, error) {
	var heard said
	at := h.endpoint.JoinPath(h.repo, "resolve", h.revision, file)
	req, err := http.NewRequestWithContext(x.ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, heard, permanent{fmt.Errorf("%s: no URL for %s", h, file)}
	}
	req.Header.Set("Accept-Encoding", "identity") // sums are of the bytes as they are
	req.Header.Set("User-Agent", "toolfinch")
	if ranged != "" {
		req.Header.Set("Range", ranged)
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	client := *h.client
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		heard.hear(next.Response.Header, at.Host == h.endpoint.Host)
		switch from := at.Scheme; {
		case len(via) >= maxRedirects:
			return permanent{fmt.Errorf("%s: more than %d redirects", h, maxRedirects)}
		case next.URL.Host == "" || next.URL.Scheme != "https" && (next.URL.Scheme != "http" || from == "https"):
			return permanent{fmt.Errorf("%s: redirect to something else than an https URL", at.Host)}
		}
		at = next.URL
		next.Header.Del("Referer") // it may be signed
		if !h.trusts(at) {
			next.Header.Del("Authorization")
		}
		return nil
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, heard, x.because(h.unreachable(at, err))
	}
	heard.hear(resp.Header, at.Host == h.endpoint.Host)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		return resp, heard, nil
	}
	resp.Body.Close()
	return nil, heard, h.refusal(at, resp)
}

// trusts reports whether the token may go there: to the endpoint's host, and never
// from an encrypted connection to a plain one.
func (h *hub) trusts(at *url.URL) bool {
	return at.Host == h.endpoint.Host && (at.Scheme == "https" || at.Scheme == h.endpoint.Scheme)
}

// refusal turns a status into an error.
func (h *hub) refusal(at *url.URL, resp *http.Response) error {
	err := fmt.Errorf("%s answers %s", at.Host, resp.Status)
	switch status := resp.StatusCode; {
	case status == http.StatusNotFound || status == http.StatusGone:
		return permanent{fmt.Errorf("%w: %w", errNoFile, err)}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return permanent{fmt.Errorf("%w: there is no model %s, or it needs a token: check the name, set HF_TOKEN", err, h.repo)}
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return later{err, time.Duration(max(0, min(seconds, 3600))) * time.Second}
	}
	return permanent{fmt.Errorf("%w; set HF_ENDPOINT to another mirror%s", err, h.elseNPM)}
}

// unreachable leaves the URL out of a network error: behind a redirect it is a
// signed one.
func (h *hub) unreachable(at *url.URL, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if p, ok := errors.AsType[permanent](err); ok { // a redirect that is not followed
		return p
	}
	err = fmt.Errorf("%s cannot be reached: %w", at.Host, err)
	if d, ok := errors.AsType[*net.DNSError](err); ok && d.IsNotFound {
		return permanent{fmt.Errorf("%w; set HF_ENDPOINT to a mirror%s", err, h.elseNPM)}
	}
	return err
}

// exchange is one request with its answer. It ends when the other side is silent
// for too long. It is the reader of body, and gives new time with every read.
type exchange struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
	timer  *time.Timer
	body   io.Reader
}

func (h *hub) exchange(ctx context.Context) *exchange {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(h.stall, func() { cancel(errStalled) })
	return &exchange{ctx: ctx, cancel: cancel, stall: h.stall, timer: timer}
}

func (x *exchange) end() {
	x.timer.Stop()
	x.cancel(nil)
}

func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	if n > 0 {
		x.timer.Reset(x.stall)
	}
	return n, x.because(err)
}

// because names the reason of an error that silence caused.
func (x *exchange) because(err error) error {
	if cause := context.Cause(x.ctx); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}
