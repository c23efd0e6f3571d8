package register

import (
	"bytes"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/tool"
	"toolfinch/wire"
)

// checkParamHeaders checks the headers that mirror arguments, where the tool
// wants some (SEP-2243).
func checkParamHeaders(served *Served, x *wire.Exchange, name string) error {
	t, ok := served.Lookup(name)
	if !ok || !bytes.Contains(t.Def.InputSchema, []byte("x-mcp-header")) {
		return nil
	}
	var typed mcp.Tool
	if json.Unmarshal(t.Def.Raw, &typed) != nil {
		return nil
	}
	err := mcp.ValidateParamHeadersLookup(func(name string) (string, bool) {
		values := x.Header.Values(name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}, &typed, x.Params)
	if err != nil {
		return &tool.RPCError{Code: mcp.HEADER_MISMATCH, Message: err.Error()}
	}
	return nil
}
