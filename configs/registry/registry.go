// Package registry asks an MCP registry for servers, and plans how a server is started or
// reached. It installs, starts and writes nothing. It trusts no text of a registry.
package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"toolfinch/internal/nearest"
	"toolfinch/internal/rawjson"
)

// Official is the address of the registry of the Model Context Protocol.
const Official = "https://registry.modelcontextprotocol.io"

// The bounds of a registry's answers.
const (
	maxBody      = 8 << 20 // bytes of an answer
	maxPages     = 10
	pageSize     = 100 // servers; the official registry's maximum
	maxRedirects = 5
	oneRequest   = 20 * time.Second
)

// Registry is a registry with the official API, version v0.1.
type Registry struct {
	base   *url.URL
	client *http.Client
}

var apiVersion = regexp.MustCompile(`^v[0-9.]+$`)

// New returns the registry at an http or https URL. The path may end in the version of the
// API, which is v0.1 otherwise.
func New(base string) (*Registry, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the address of a registry is an http or https URL without user, query and fragment")
	}
	if !apiVersion.MatchString(path.Base(u.Path)) {
		u = u.JoinPath("v0.1")
	}
	client := &http.Client{Timeout: oneRequest, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		if via[0].URL.Scheme == "https" && to.URL.Scheme != "https" {
			return errors.New("it redirects to where nothing is encrypted")
		}
		return nil
	}}
	return &Registry{u, client}, nil
}

// Found is the result of a search.
type Found struct {
	Listings   []Listing
	More       bool // the registry has more servers
	Unreadable int  // listings that break the API
}

// Search returns the latest versions of up to limit servers whose names contain query. It
// reads at most ten pages, so it may return fewer.
func (r *Registry) Search(ctx context.Context, query string, limit int) (Found, error) {
	var found Found
	params := url.Values{"version": {"latest"}, "limit": {strconv.Itoa(min(limit, pageSize))}}
	if query != "" {
		params.Set("search", query)
	}
	seen := map[string]bool{}
	for range maxPages {
		var page struct {
			Servers  []json.RawMessage
			Metadata struct{ NextCursor string }
		}
		if err := r.get(ctx, r.base.JoinPath("servers"), params, &page); err != nil {
			return found, err
		}
		for _, raw := range page.Servers {
			l, err := listing(raw)
			switch {
			case err != nil:
				found.Unreadable++
			case seen[l.Name]: // the registry ignores version=latest
			case len(found.Listings) == limit:
				found.More = true
				return found, nil
			default:
				seen[l.Name] = true
				found.Listings = append(found.Listings, l)
			}
		}
		found.More = page.Metadata.NextCursor != "" && page.Metadata.NextCursor != params.Get("cursor")
		if !found.More || len(found.Listings) == limit {
			break
		}
		params.Set("cursor", page.Metadata.NextCursor)
	}
	return found, nil
}

// UnknownError says that a registry does not have a server, or a version of it.
type UnknownError struct {
	Name    string
	Version string   // "" for the latest
	Near    []string // the nearest names
}

// Error is one line.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("the registry has no server %q", e.Name)
	if e.Version != "" {
		text += fmt.Sprintf(" in version %q", e.Version)
	}
	if len(e.Near) > 0 {
		text += "; nearest: " + strings.Join(e.Near, ", ")
	}
	return text
}

// Show returns a version of a server, "" for the latest. An unknown version is an
// *UnknownError.
func (r *Registry) Show(ctx context.Context, name, version string) (Listing, error) {
	asked := cmp.Or(version, "latest")
	var raw json.RawMessage
	err := error(&StatusError{Code: http.StatusNotFound})
	if strings.Contains(name, "/") {
		// Slashes in names are escaped, because JoinPath would remove them.
		place := *r.base
		place.RawPath = place.EscapedPath() + "/servers/" + url.PathEscape(name) + "/versions/" + url.PathEscape(asked)
		place.Path, _ = url.PathUnescape(place.RawPath)
		if err = r.get(ctx, &place, nil, &raw); isUnknown(err) {
			err = r.get(ctx, &place, url.Values{"include_deleted": {"true"}}, &raw)
		}
	}
	if isUnknown(err) {
		return Listing{}, &UnknownError{Name: name, Version: version, Near: r.near(ctx, name)}
	}
	if err != nil {
		return Listing{}, err
	}
	l, err := listing(raw)
	if err == nil && l.Name != name {
		err = fmt.Errorf("it answers with another server, %q", rawjson.Clip(l.Name, 80))
	}
	if err != nil {
		return Listing{}, fmt.Errorf("%s: %w", r.base.Host, err)
	}
	return l, nil
}

func isUnknown(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Code == http.StatusNotFound
}

// near returns names like an unknown name. Errors are ignored, because the caller reports
// the unknown name.
func (r *Registry) near(ctx context.Context, name string) []string {
	own := name[strings.LastIndex(name, "/")+1:]
	queries := append([]string{own}, strings.FieldsFunc(own, func(c rune) bool { return strings.ContainsRune("-_. ", c) })...)
	queries = append(queries, rawjson.Head(own, 4), rawjson.Head(own[min(len(own), 3):], 4))
	var names []string
	for _, query := range queries[:min(len(queries), 6)] {
		if len(query) < 3 || len(names) > 0 {
			continue
		}
		found, err := r.Search(ctx, query, pageSize)
		if err != nil {
			return nil
		}
		for _, l := range found.Listings {
			names = append(names, l.Name)
		}
	}
	if near := nearest.Names(name, names, 3, nearest.Loose); len(near) > 0 {
		return near
	}
	return names[:min(3, len(names))]
}

// StatusError is an answer with another status than 2xx.
type StatusError struct {
	Host  string
	Code  int
	Words string        // the registry's explanation, bounded
	Wait  time.Duration // before the next request, as the registry asks; 0 for none
}

// Error is one line.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answers %d %s", e.Host, e.Code, http.StatusText(e.Code))
	if e.Words != "" {
		text += ": " + e.Words
	}
	if e.Wait > 0 {
		text += fmt.Sprintf(" (try again in %s)", e.Wait)
	}
	return text
}

// get requests a resource once. The error tells the user when to try again.
func (r *Registry) get(ctx context.Context, at *url.URL, params url.Values, into any) error {
	where := *at
	where.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "toolfinch")
	res, err := r.client.Do(req)
	if err != nil {
		return r.failed(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	switch {
	case res.StatusCode/100 != 2:
		return statusError(r.base.Host, res, body)
	case err != nil:
		return r.failed(ctx, err)
	case len(body) > maxBody:
		return fmt.Errorf("%s: the answer is larger than %d MiB", r.base.Host, maxBody>>20)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: the answer is not what the API of a registry has (is this the address of one?): %w", r.base.Host, inWords(err))
	}
	return nil
}

// failed is the error of a request without an answer.
func (r *Registry) failed(ctx context.Context, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL
	}
	slow, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = context.Cause(ctx)
	case ctx.Err() == nil && ok && slow.Timeout() && r.client.Timeout > 0:
		err = fmt.Errorf("the registry did not answer within %s", r.client.Timeout)
	}
	return fmt.Errorf("%s: %w", r.base.Host, err)
}

// statusError reads the explanation where the API's document has it, and where the official
// registry has it.
func statusError(host string, res *http.Response, body []byte) error {
	e := &StatusError{Host: host, Code: res.StatusCode}
	for _, key := range []string{"error", "detail", "message"} {
		if !json.Valid(body) {
			break
		}
		if e.Words = rawjson.Text(rawjson.Member(body, key)); e.Words != "" {
			break
		}
	}
	e.Words = rawjson.Clip(strings.Join(strings.Fields(e.Words), " "), 300)
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds < 1<<20 {
		e.Wait = time.Duration(seconds) * time.Second
	}
	return e
}
