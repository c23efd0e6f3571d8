package upstream

import (
	"errors"
	"fmt"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// Errors that callers may tell apart. They come wrapped in an *Error. An error that is
// ErrNotConnected may also be ErrClosed or ErrTimeout, so test for ErrNotConnected first.
var (
	ErrUnknownServer = errors.New("no such server is configured")
	ErrNotConnected  = conn.ErrNotConnected // nothing was sent: there was no connection
	ErrClosed        = conn.ErrClosed       // the connection was lost during the request
	ErrTimeout       = conn.ErrTimeout      // a limit of the server's settings, or the caller's deadline
)

var (
	// errReplaced ends a connection because a new one replaces it.
	errReplaced = fmt.Errorf("%w: the server is being connected anew", ErrClosed)
	// errGaveWay ends calls that keep other calls from the server.
	errGaveWay = errors.New("the client has not answered what the server asked, and others wait for the server; call again")
)

// Reason is the text of a call's error without the server's words, which may repeat
// arguments.
func Reason(err error) string { return conn.WithoutWords(err.Error()) }

// Brief is Reason for others than the owner: without the server's words.
func (f Failure) Brief() string { return conn.WithoutWords(f.Reason) }

// ClipReason cuts a Reason of a Failure to n bytes and "...", so that Brief can tell what is left of the server's words.
func ClipReason(reason string, n int) string { return conn.ClipWords(reason, n) }

// Error is an error of an upstream. Its text may be shown to clients.
type Error struct {
	Server string
	Op     string // "call search_code", "list tools"
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("upstream %s: %s: %v", e.Server, e.Op, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// unknownMethod reports whether err says that the server does not know the method.
func unknownMethod(err error) bool {
	rpc, ok := errors.AsType[*tool.RPCError](err)
	return ok && rpc.Code == tool.CodeMethodNotFound
}

// cannot is the error of a question for which the client lacks the capability.
func cannot(capability string) error {
	return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the client does not support " + capability}
}
