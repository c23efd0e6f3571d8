package retrieve

import "strings"

// Settings that offer meta-tools, and where they are documented.
const (
	withRetrieve = "exposure_mode: retrieve: see docs/views.md"
	withCallTool = "exposure_mode: retrieve and routing_type: AUTO or CALL_TOOL: see docs/configuration.md"
	withSplit    = "exposure_mode: retrieve and call_tool: split: see docs/configuration.md"
	withGating   = "gating: see docs/gating.md"
	withSearch   = "exposure_mode: search, under the name of the view (NAME_search_tools, NAME_describe_tool, NAME_call_tool): see docs/views.md"
)

// offeredWith says by the name of a meta-tool which setting offers it.
var offeredWith = map[string]string{
	RetrieveTools:       withRetrieve,
	CallTool:            withCallTool,
	CallToolRead:        withSplit,
	CallToolWrite:       withSplit,
	CallToolDestructive: withSplit,
	DiscoverTools:       withGating,
	ProvisionTools:      withGating,
	UnprovisionTools:    withGating,
	ExecuteTool:         withGating,
	ListProvisioned:     withGating,
	"search_tools":      withSearch,
	"describe_tool":     withSearch,
	"proxy":             "proxy_tool: see docs/proxy-tool.md",
	"run_script":        "run_script: true in a view: see docs/views.md",
	"read_output":       "output_cache: see docs/configuration.md",
}

// offered says of a meta-tool that nothing here has which setting offers it: "; X is
// offered with ...". It is "" for other names.
func offered(name string) string {
	with, ok := offeredWith[name]
	if !ok {
		for _, own := range SearchNames("") {
			if strings.HasSuffix(name, own) {
				with, ok = withSearch, true
			}
		}
	}
	if !ok {
		return ""
	}
	return "; " + name + " is offered with " + with
}
