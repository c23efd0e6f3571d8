// Package fetch sends the HTTP requests of tests; only they import it.
package fetch

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Send sends a request. Each header is "Name: value". A body is JSON, unless a header names another
// type.
func Send(t testing.TB, method, url, body string, header ...string) Answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Set(name, value)
		if name == "Host" {
			request.Host = value
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{response.StatusCode, response.Header, string(text)}
}
