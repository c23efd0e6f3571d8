package register

import (
	"encoding/json"
	"errors"
	"fmt"

	"toolfinch/tool"
)

func methodNotFound(method string) error {
	return &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "method not found: " + method}
}

// notFound is the error for an unknown name. The 2026-07-28 revision changed the code for resources.
func notFound(kind tool.Kind, name, hint string, modern bool) error {
	rpc := &tool.RPCError{Code: tool.CodeInvalidParams, Message: fmt.Sprintf("unknown %s %q%s", kind, name, hint)}
	if kind == tool.KindResource {
		rpc.Data, _ = json.Marshal(map[string]string{"uri": name})
		if !modern {
			rpc.Code = tool.CodeResourceNotFound
		}
	}
	return rpc
}

var errClientGone = errors.New("the client is gone")

var errRevoked = errors.New("the API key of the call was revoked, or has expired")

var errStopping = errors.New("the proxy is stopping")
