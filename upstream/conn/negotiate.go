package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

const (
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"
)

// probeWithin bounds how long a server of an unknown era may take to answer server/discover. Some servers that do not
// know the method never answer.
const probeWithin = 5 * time.Second

// Errors of a negotiation; the error of the server is wrapped beside them.
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

// negotiate agrees with the server on a protocol version. Afterwards the connection is ready.
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

// agree chooses the era by the versions in the server's answer to server/discover. A server without an answer, or
// without a version of the 2026-07-28 era that we know, gets the handshake.
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

// discover asks the server for its versions. It waits for probeWithin, and longer for a server that answered before.
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

// Meta adds to the _meta of a request the members that a server of the 2026-07-28 era requires: the client's name,
// version and capabilities.
func (c *Conn) Meta(meta *rawjson.Object, capabilities []byte) { c.meta(meta, c.Version, capabilities) }

func (c *Conn) meta(meta *rawjson.Object, version string, capabilities []byte) {
	meta.AddText(mcp.MetaKeyProtocolVersion, version)
	meta.Add(mcp.MetaKeyClientCapabilities, capabilities)
	meta.Add(mcp.MetaKeyClientInfo, c.options.clientInfo())
}

func (o *Options) clientInfo() json.RawMessage {
	info := rawjson.NewObject(64)
	info.AddText("name", "toolfinch")
	info.AddText("version", o.ClientVersion)
	return info.JSON()
}

// handshake sends initialize and notifications/initialized. A server that refuses our version is asked once more, with
// the newest version that it names.
func (c *Conn) handshake(ctx context.Context) error {
	result, err := c.initialize(ctx, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	if named := namedVersion(err); named != "" && !c.Dead() {
		result, err = c.initialize(ctx, named)
	}
	switch status := new(StatusError); {
	case !FailureOf(err).Sent, unauthorized(err), c.Dead():
		return Plain(err)
	case errors.As(err, &status) && status.Code/100 == 4:
		return Mark(Mark(fmt.Errorf("initialize: %w", err), errNoPost), errRefused)
	case err != nil: // the text alone: an error of the handshake is no answer to a call
		return Mark(fmt.Errorf("initialize: %.300s", err), errRefused)
	}
	version := rawjson.Text(rawjson.Member(result, "protocolVersion"))
	if !legacyVersion(version) {
		return Mark(fmt.Errorf("initialize: it answers with protocol version %.40q, which this client does not speak", version), errRefused)
	}
	c.agreed(EraLegacy, version, result)
	if err := c.Notify(ctx, "notifications/initialized", nil); err != nil {
		return fmt.Errorf("notifications/initialized: %w", Plain(c.explain(err, true)))
	}
	return nil
}

func (c *Conn) initialize(ctx context.Context, version string) (json.RawMessage, error) {
	c.spoken.Store("")
	members := rawjson.NewObject(512)
	members.AddText("protocolVersion", version)
	members.Add("capabilities", c.options.Capabilities)
	members.Add("clientInfo", c.options.clientInfo())
	return c.Request(ctx, methodInitialize, members.JSON(), nil)
}

// legacyVersion reports whether version is of the legacy era. Its drafts and first revisions have the same handshake.
func legacyVersion(version string) bool {
	return dated.FindString(version) == version && version != "" && version <= mcp.LATEST_LEGACY_PROTOCOL_VERSION
}

var dated = regexp.MustCompile(`\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b`)

// namedVersion returns the newest version of the legacy era, but ours, that a refusal of initialize names, in its data
// or its words; "" for none.
func namedVersion(err error) (newest string) {
	var words string
	if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
		words = string(rpc.Raw)
	} else if status, ok := errors.AsType[*StatusError](err); ok {
		words = status.body
	}
	for _, named := range dated.FindAllString(words, maxVersions) {
		if named != mcp.LATEST_LEGACY_PROTOCOL_VERSION && legacyVersion(named) {
			newest = max(newest, named)
		}
	}
	return newest
}

// maxVersions bounds how many versions are read of a refusal.
const maxVersions = 100

// agreed keeps the negotiated version, and the server's description of itself as the bytes that came.
func (c *Conn) agreed(era Era, version string, result json.RawMessage) {
	c.spoken.Store(version)
	c.Era, c.Version, c.Capabilities = era, version, rawjson.Member(result, "capabilities")
	c.Instructions = rawjson.Text(rawjson.Member(result, "instructions"))
	if c.Info = rawjson.Member(result, "serverInfo"); c.Info == nil {
		c.Info = rawjson.Member(rawjson.Member(result, "_meta"), mcp.MetaKeyServerInfo)
	}
}

// modernVersion returns the version of the 2026-07-28 era that a server's answer to server/discover names and that we
// know. Some servers answer with older versions only, or answer every method with an empty result.
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
