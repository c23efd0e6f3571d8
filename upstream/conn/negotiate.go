package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
)

const (
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"
)

// probeWithin is how long a server of an unknown era may take to answer
// server/discover. Some that do not know it never answer.
const probeWithin = 5 * time.Second

// Why a negotiation failed. They come beside the error of the server.
var (
	// errRefused says that the server is there and does not take the handshake.
	errRefused = errors.New("the handshake was refused")
	// errUnheard is errRefused where the server has not answered server/discover
	// either, or was not asked: it may be of the 2026-07-28 era all the same.
	errUnheard = errors.New("the era of the server is not certain")
	// errNoPost says that the server refused the handshake with an HTTP status: it
	// may be one of HTTP+SSE.
	errNoPost = errors.New("the server takes no POST")
)

// negotiate agrees with the server on a protocol version. Afterwards the
// connection is ready.
func (c *Conn) negotiate(ctx context.Context, known Era) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.Life, func() { cancel(context.Cause(c.Life)) })()
	err := c.agree(ctx, known)
	switch {
	case err == nil:
		close(c.Ready)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// agree chooses the era by the versions that the server names in its answer to
// server/discover. A server that does not answer that, or names none of the
// 2026-07-28 era that is known here, gets the handshake.
func (c *Conn) agree(ctx context.Context, known Era) error {
	heard := known != EraLegacy && !c.options.Legacy
	if heard {
		result, err := c.discover(ctx, known)
		switch {
		case !FailureOf(err).Sent, unauthorized(err), ctx.Err() != nil, c.Dead():
			return Plain(err)
		case errors.Is(err, context.DeadlineExceeded):
			heard = false
		}
		if version, ok := modernVersion(result); ok {
			c.agreed(EraModern, version, result)
			return nil
		}
	}
	err := c.handshake(ctx)
	if !heard && !c.options.Legacy && errors.Is(err, errRefused) {
		return Mark(err, errUnheard)
	}
	return err
}

// discover asks the server which versions it speaks, for probeWithin unless it is
// known to answer.
func (c *Conn) discover(ctx context.Context, known Era) (json.RawMessage, error) {
	if known != EraModern {
		probe, cancel := context.WithTimeout(ctx, leeway.Of(probeWithin))
		defer cancel()
		ctx = probe
	}
	version := mcp.LATEST_PROTOCOL_VERSION
	c.spoken.Store(version)
	meta, members := rawjson.NewObject(512), rawjson.NewObject(512)
	c.meta(meta, version, c.options.Capabilities)
	members.Add("_meta", meta.JSON())
	return c.Request(ctx, methodDiscover, members.JSON(), http.Header{mcp.HeaderMethod: {methodDiscover}})
}

// Meta adds to the _meta of a request what a server of the 2026-07-28 era wants in
// each: who the client is, and what it can do.
func (c *Conn) Meta(meta *rawjson.Object, capabilities []byte) { c.meta(meta, c.Version, capabilities) }

func (c *Conn) meta(meta *rawjson.Object, version string, capabilities []byte) {
	meta.AddText(mcp.MetaKeyProtocolVersion, version)
	meta.Add(mcp.MetaKeyClientCapabilities, capabilities)
	meta.Add(mcp.MetaKeyClientInfo, c.clientInfo())
}

func (c *Conn) clientInfo() json.RawMessage {
	info := rawjson.NewObject(64)
	info.AddText("name", "toolfinch")
	info.AddText("version", c.options.ClientVersion)
	return info.JSON()
}

// handshake is initialize and what follows it.
func (c *Conn) handshake(ctx context.Context) error {
	c.spoken.Store("")
	members := rawjson.NewObject(512)
	members.AddText("protocolVersion", mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	members.Add("capabilities", c.options.Capabilities)
	members.Add("clientInfo", c.clientInfo())
	result, err := c.Request(ctx, methodInitialize, members.JSON(), nil)
	switch status := new(StatusError); {
	case !FailureOf(err).Sent, unauthorized(err), c.Dead():
		return Plain(err)
	case errors.As(err, &status) && status.Code/100 == 4:
		return Mark(Mark(fmt.Errorf("initialize: %w", err), errNoPost), errRefused)
	case err != nil: // its text only: an answer to this is none to a call
		return Mark(fmt.Errorf("initialize: %.300s", err), errRefused)
	}
	version := rawjson.Text(rawjson.Member(result, "protocolVersion"))
	if !mcp.IsValidProtocolVersion(version) || mcp.IsModernProtocol(version) {
		return Mark(fmt.Errorf("initialize: it answers with protocol version %.40q, which this client does not speak", version), errRefused)
	}
	c.agreed(EraLegacy, version, result)
	if err := c.Notify(ctx, "notifications/initialized", nil); err != nil {
		return fmt.Errorf("notifications/initialized: %w", Plain(c.explain(err, true)))
	}
	return nil
}

// agreed keeps what was negotiated, and what the server says of itself, as it was
// sent.
func (c *Conn) agreed(era Era, version string, result json.RawMessage) {
	c.spoken.Store(version)
	c.Era, c.Version, c.Capabilities = era, version, rawjson.Member(result, "capabilities")
	c.Instructions = rawjson.Text(rawjson.Member(result, "instructions"))
	if c.Info = rawjson.Member(result, "serverInfo"); c.Info == nil {
		c.Info = rawjson.Member(rawjson.Member(result, "_meta"), mcp.MetaKeyServerInfo)
	}
}

// modernVersion returns the version of the 2026-07-28 era that an answer to
// server/discover names and that is known here. Servers exist that answer it and
// name only older ones, or answer anything with an empty result.
func modernVersion(discovered json.RawMessage) (version string, ok bool) {
	var named []string
	if json.Unmarshal(rawjson.Member(discovered, "supportedVersions"), &named) != nil {
		return "", false
	}
	i := slices.IndexFunc(named, func(v string) bool { return mcp.IsModernProtocol(v) && mcp.IsValidProtocolVersion(v) })
	if i < 0 {
		return "", false
	}
	return named[i], true
}
