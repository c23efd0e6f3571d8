package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/wire"
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
func (c *conn) negotiate(ctx context.Context, known Era) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })()
	err := c.agree(ctx, known)
	switch {
	case err == nil:
		close(c.ready)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// agree chooses the era by the versions that the server names in its answer to
// server/discover. A server that does not answer that, or names none of the
// 2026-07-28 era that is known here, gets the handshake.
func (c *conn) agree(ctx context.Context, known Era) error {
	heard := known != EraLegacy && !c.legacy
	if heard {
		result, err := c.discover(ctx, known)
		switch {
		case errors.As(err, new(undelivered)), errors.Is(err, errUnauthorized), ctx.Err() != nil, c.dead():
			return plain(err)
		case errors.Is(err, context.DeadlineExceeded):
			heard = false
		}
		if version, ok := modernVersion(result); ok {
			c.agreed(EraModern, version, result)
			return nil
		}
	}
	err := c.handshake(ctx)
	if !heard && !c.legacy && errors.Is(err, errRefused) {
		return marked{err, errUnheard}
	}
	return err
}

// discover asks the server which versions it speaks, for probeWithin unless it is
// known to answer.
func (c *conn) discover(ctx context.Context, known Era) (json.RawMessage, error) {
	if known != EraModern {
		probe, cancel := context.WithTimeout(ctx, probeWithin)
		defer cancel()
		ctx = probe
	}
	version := mcp.LATEST_PROTOCOL_VERSION
	c.speak(version)
	meta, members := rawjson.NewObject(512), rawjson.NewObject(512)
	speaks(meta, version, c.declare)
	members.Add("_meta", meta.JSON())
	return c.request(ctx, methodDiscover, members.JSON(), http.Header{mcp.HeaderMethod: {methodDiscover}})
}

// speaks adds what a server of the 2026-07-28 era wants in the _meta of every
// request.
func speaks(o *rawjson.Object, version string, abilities []byte) {
	o.AddText(mcp.MetaKeyProtocolVersion, version)
	o.Add(mcp.MetaKeyClientCapabilities, abilities)
	o.Add(mcp.MetaKeyClientInfo, clientInfo())
}

// handshake is initialize and what follows it.
func (c *conn) handshake(ctx context.Context) error {
	c.speak("")
	members := rawjson.NewObject(512)
	members.AddText("protocolVersion", mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	members.Add("capabilities", c.declare)
	members.Add("clientInfo", clientInfo())
	result, err := c.request(ctx, methodInitialize, members.JSON(), nil)
	switch status := new(wire.StatusError); {
	case errors.As(err, new(undelivered)), errors.Is(err, errUnauthorized), c.dead():
		return plain(err)
	case errors.As(err, &status) && status.Code/100 == 4:
		return marked{marked{fmt.Errorf("initialize: %w", err), errNoPost}, errRefused}
	case err != nil: // its text only: an answer to this is none to a call
		return marked{fmt.Errorf("initialize: %w", clean(plain(err))), errRefused}
	}
	version := rawjson.Text(rawjson.Member(result, "protocolVersion"))
	if !mcp.IsValidProtocolVersion(version) || mcp.IsModernProtocol(version) {
		return marked{fmt.Errorf("initialize: it answers with protocol version %.40q, which this client does not speak", version), errRefused}
	}
	c.agreed(EraLegacy, version, result)
	if err := c.notify(ctx, "notifications/initialized", nil); err != nil {
		return fmt.Errorf("notifications/initialized: %w", plain(c.explain(err, true)))
	}
	return nil
}

// agreed keeps what was negotiated, and what the server says of itself, as it was
// sent.
func (c *conn) agreed(era Era, version string, result json.RawMessage) {
	c.speak(version)
	c.era, c.version, c.offers = era, version, rawjson.Member(result, "capabilities")
	c.instructions = rawjson.Text(rawjson.Member(result, "instructions"))
	if c.info = rawjson.Member(result, "serverInfo"); c.info == nil {
		c.info = rawjson.Member(rawjson.Member(result, "_meta"), mcp.MetaKeyServerInfo)
	}
}

// speak has HTTP requests name a protocol version, none for "".
func (c *conn) speak(version string) {
	if over, ok := c.http.(transport.HTTPConnection); ok {
		over.SetProtocolVersion(version)
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

// sessionless reports whether a legacy connection is over HTTP without a session.
// Such a server has no way to ask its client anything.
func (c *conn) sessionless() bool {
	over, ok := c.http.(*transport.StreamableHTTP)
	return ok && c.era == EraLegacy && over.GetSessionId() == ""
}
