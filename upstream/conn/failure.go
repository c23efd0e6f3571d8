package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"toolfinch/upstream/login"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNotConnected = errors.New("not connected")            // there was no connection: nothing was sent
	ErrClosed       = errors.New("the connection is closed") // the connection was lost during the request
	ErrUnauthorized = errors.New("the server wants authorization")
	ErrTimeout      = errors.New("timed out") // a limit of ours or the caller's deadline passed
	// ErrTooLarge says that a message of the server is longer than MaxAnswer.
	ErrTooLarge = errors.New("the answer is longer than 64 MiB")
	// ErrWrongID says that a server answered over HTTP with another ID.
	ErrWrongID = errors.New("the answer carries the id of another request")
	// ErrNotMessage says that what came instead of an answer is not JSON-RPC.
	ErrNotMessage = errors.New("the answer is not a JSON-RPC message")
	// ErrNotReading says that a server has not read what was sent to it.
	ErrNotReading = errors.New("it does not read its input")

	errSessionEnded = Mark(errors.New("the session has ended"), ErrClosed)
)

// Failure is why a request has no answer, and what may be done about it.
type Failure struct {
	Err   error
	Sent  bool // the request may have reached the server
	Lost  bool // the connection cannot be used any more
	Again bool // the connection may be used again
}

func (f Failure) Error() string { return f.Err.Error() }

func (f Failure) Unwrap() error { return f.Err }

// FailureOf returns the Failure in err. For any other error it says: the request was sent, and nothing can be done
// about it.
func FailureOf(err error) Failure {
	if f, ok := errors.AsType[Failure](err); ok {
		return f
	}
	return Failure{Err: err, Sent: true}
}

// Plain is err without the Failure around it.
func Plain(err error) error {
	if f, ok := err.(Failure); ok {
		return f.Err
	}
	return err
}

// marked is an error that is also mark to errors.Is.
type marked struct {
	error
	mark error
}

// Mark returns an error with the text of err that is also mark to errors.Is.
func Mark(err, mark error) error { return marked{err, mark} }

func (m marked) Unwrap() error { return m.error }

func (m marked) Is(target error) bool { return target == m.mark }

// unauthorized reports whether err is about a missing login, which another transport would miss, too.
func unauthorized(err error) bool { return errors.Is(err, ErrUnauthorized) || login.About(err) }

// explain adds to err whether a request without an answer may have reached the server (sent), and may be sent again.
func (c *Conn) explain(err error, sent bool) error {
	f := Failure{Err: err, Sent: sent}
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case login.About(err):
		return err
	case errors.Is(err, ErrNotReading):
		f.Sent = false
	case c.Dead():
		f.Err, f.Lost = context.Cause(c.Life), true
	case c.Transport == TransportStdio:
		f.Err, f.Lost = fmt.Errorf("%w: the server has closed its input", ErrClosed), true
	case errors.Is(err, errRedirect):
		return err
	case isOp && op.Op == "dial":
		f = Failure{Err: Mark(err, ErrNotConnected), Lost: true}
	case isOp, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		// The TCP connection of this request was lost; other requests use other TCP connections.
		f.Err, f.Again = Mark(err, ErrClosed), true
	default:
		f.Again = true
	}
	return f
}
