package conn

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// StatusError is an HTTP status that came instead of an answer. It is ErrUnauthorized to errors.Is if the status is
// 401.
type StatusError struct {
	Code  int
	Words string        // text of the server in one line; "" for none
	Scope string        // scope that the token lacks, of a 403 (RFC 6750); "" if not told
	Wait  time.Duration // Retry-After; 0 if not told

	body string // its first bytes, for what the negotiation reads of it
}

// maxWords bounds how many bytes of a server's text an error repeats.
const maxWords = 300

func (e *StatusError) Error() string {
	text := strings.TrimSpace("HTTP status " + strconv.Itoa(e.Code) + " " + http.StatusText(e.Code))
	switch {
	case e.Code == http.StatusUnauthorized:
		text = "needs a login (" + text + "): set a token under headers"
	case e.Scope != "":
		text += ": the token lacks the scope " + e.Scope
	case e.Code == http.StatusBadRequest && strings.Contains(e.body, "SSL certificate"): // in the words of nginx
		text += ": " + discovery.HintCertificate
	case e.Code == http.StatusNotFound:
		text += ": is the URL right?"
	case e.Wait > 0:
		text += fmt.Sprintf(": try again in %s", e.Wait)
	}
	if e.Words != "" {
		text += itSays + e.Words
	}
	return text
}

const (
	itSays            = "; it says: "
	itWrote, andThere = `it wrote "`, `"; ` // around the last words of a process

	notPassedOn                 = "; set here and not passed on: " // names of the owner's variables
	processEnded, processSilent = "the process ended (", "the process runs and has not answered"
)

// withLastWords puts what the process of a server wrote last before an error: mostly it is the cause.
func withLastWords(err error, words string) error {
	if words = printable.Line(words); words == "" {
		return err
	}
	return fmt.Errorf("%s%s%s%w", itWrote, words, andThere, err)
}

// WithoutWords is the text of an error without the words of the server and its process, which may repeat arguments.
func WithoutWords(text string) string {
	before, _, after, wrote := written(text)
	if wrote && after == "" {
		before = strings.TrimRight(before, ": ")
	}
	text, _, _ = strings.Cut(before+after, itSays)
	text, _, _ = strings.Cut(text, notPassedOn)
	return text
}

// ClipWords cuts the text of an error to n bytes and "...": first what the process wrote, so that WithoutWords still
// tells it from the rest.
func ClipWords(text string, n int) string {
	before, words, after, wrote := written(text)
	room := n - len(text) + len(words)
	switch {
	case len(text) <= n || !wrote:
		return rawjson.Clip(text, n)
	case room < 0:
		return rawjson.Clip(WithoutWords(text), n)
	case after == "":
		return before + itWrote + rawjson.Clip(words, room)
	}
	return before + itWrote + rawjson.Clip(words, room) + andThere + after
}

// written splits the text of an error around what the process wrote. after is "" if the text ends within the words.
func written(text string) (before, words, after string, wrote bool) {
	before, words, wrote = strings.Cut(text, itWrote)
	at := strings.LastIndex(words, andThere)
	if at < 0 {
		return before, words, "", wrote
	}
	for _, frame := range []string{processEnded, processSilent} {
		if after = words[at+len(andThere):]; strings.Contains(after, frame) {
			return before, words[:at], after, wrote
		}
	}
	return before, words, "", wrote
}

// aboutSession reports whether the server says that it refused a request for its session.
func (e *StatusError) aboutSession() bool {
	return strings.Contains(strings.ToLower(e.Words), "session")
}

func (e *StatusError) Is(target error) bool {
	return target == ErrUnauthorized && e.Code == http.StatusUnauthorized
}

// statusError is the error of a response whose status carries no answer.
func statusError(response *http.Response) error {
	head, _ := io.ReadAll(io.LimitReader(response.Body, maxText))
	return statusErrorOf(response, head)
}

// statusErrorOf is statusError of a response whose body was read.
func statusErrorOf(response *http.Response, body []byte) *StatusError {
	e := &StatusError{Code: response.StatusCode, Words: wordsOf(response, body), body: string(body)}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.Wait = min(time.Duration(seconds), 86_400) * time.Second
	} else if at, err := http.ParseTime(response.Header.Get("Retry-After")); err == nil {
		e.Wait = max(0, time.Until(at)).Round(time.Second)
	}
	if challenge := response.Header.Get("WWW-Authenticate"); response.StatusCode == http.StatusForbidden {
		if _, after, ok := strings.Cut(challenge, `scope="`); ok {
			scope, _, _ := strings.Cut(after, `"`)
			e.Scope = rawjson.Clip(printable.Line(scope), maxWords)
		}
	}
	return e
}

// wordsOf is the text of a body that is JSON or plain text. A page for people says less than its status.
func wordsOf(response *http.Response, body []byte) string {
	switch kind := contentType(response); {
	case kind == typeJSON || strings.HasSuffix(kind, "+json"):
		if !json.Valid(body) {
			return ""
		}
		text := func(of []byte, member string) string { return rawjson.Text(rawjson.Member(of, member)) }
		for _, of := range [][]byte{rawjson.Member(body, "error"), body} {
			for _, member := range []string{"error_description", "message", "detail", "title", "error"} {
				if words := text(of, member); words != "" {
					return rawjson.Clip(printable.Line(words), maxWords)
				}
			}
		}
	case kind == "text/plain" || kind == "":
		return rawjson.Clip(printable.Line(string(body)), maxWords)
	}
	return ""
}
