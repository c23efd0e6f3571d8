package tool

// Layer is a position around the handler of a tool. Code that builds tools adds middlewares with Tool.With, in any
// order; calls pass them in the order below.
type Layer uint8

// The layers of a call, outermost first. Every surface enters at the outermost one: tools/call, call_tool,
// execute_tool, the proxy tool, REST, the page, run_script and the command line. Steps of composite and
// custom tools act for the owner: they enter at LayerHooks, with an observer of their own.
const (
	LayerStarting        Layer = iota // a meta-tool waits for servers that start for the first time
	LayerNames                        // names and URIs as clients see them
	LayerFailures                     // clients get the kind of a failure, not a failing server's words
	LayerObserved                     // feed, metrics, audit log and learning see the outcome
	LayerLimits                       // rate limits
	LayerScopes                       // the scopes of the caller's token
	LayerGate                         // in a gated view, provisioned tools only
	LayerOutput                       // large results are kept; the answer is a preview
	LayerViewArguments                // arguments renamed, hidden and bound by the view
	LayerSecrets                      // secrets in answers
	LayerHooks                        // the view's hooks
	LayerServerArguments              // arguments renamed, hidden and bound under the server
	LayerPolicies                     // policies, over the arguments that the server gets
	LayerHeld                         // a definition that awaits approval is not called
	LayerAudit                        // the audit log records the call before it changes anything
)

var layerNames = [...]string{
	"starting", "names", "failures", "observed", "limits", "scopes", "gate", "output", "view's arguments", "secrets", "hooks",
	"server's arguments", "policies", "held", "audit",
}

func (l Layer) String() string { return layerNames[l] }
