package conn

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

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

	processEnded, processSilent = "the process ended (", "the process runs and has not answered"
)

// withLastWords puts what the process of a server wrote last before an error: mostly it is the cause.
func withLastWords(err error, words string) error {
	if words = printable.Line(words); words == "" {
		return err
	}
	return fmt.Errorf("%s%s%s%w", itWrote, words, andThere, err)
}

// WithoutWords is the text of an error without the server's text, which may repeat arguments.
func WithoutWords(err error) string {
	text := err.Error()
	if _, ok := errors.AsType[*StatusError](err); ok {
		text, _, _ = strings.Cut(text, itSays)
	}
	// The error of an answer may be nothing but text.
	before, after, wrote := strings.Cut(text, itWrote)
	if !wrote {
		return text
	}
	last := after[max(0, strings.LastIndex(after, andThere)):]
	for _, frame := range []string{processEnded, processSilent} {
		if strings.Contains(last, frame) {
			return before + strings.TrimPrefix(last, andThere)
		}
	}
	return strings.TrimRight(before, ": ") // the text was cut within the words
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
	e := &StatusError{Code: response.StatusCode, Words: wordsOf(response, body)}
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
