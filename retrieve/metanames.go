package retrieve

import (
	"regexp"
	"strings"
)

// Names of the meta-tools. They are reserved: no upstream's tool gets one.
const (
	RetrieveTools       = "retrieve_tools"
	CallTool            = "call_tool"
	CallToolRead        = "call_tool_read"
	CallToolWrite       = "call_tool_write"
	CallToolDestructive = "call_tool_destructive"

	DiscoverTools    = "discover_tools"
	ProvisionTools   = "provision_tools"
	UnprovisionTools = "unprovision_tools"
	ExecuteTool      = "execute_tool"
	ListProvisioned  = "list_provisioned"

	ReadSkill = "read_skill" // reserved where a server has skills
)

// Calls reports whether the meta-tool of that name calls other tools.
func Calls(name string) bool {
	switch name {
	case CallTool, CallToolRead, CallToolWrite, CallToolDestructive, ExecuteTool:
		return true
	}
	return strings.HasSuffix(name, "_call_tool")
}

// Reserved returns the names of all meta-tools, offered or not.
func Reserved() []string {
	return []string{RetrieveTools, CallTool, CallToolRead, CallToolWrite, CallToolDestructive,
		DiscoverTools, ProvisionTools, UnprovisionTools, ExecuteTool, ListProvisioned}
}

// SearchName returns the name of the meta-tool that searches tools under prefix, the name of a view or server.
func SearchName(prefix string) string { return searchPrefix(prefix) + "_search_tools" }

// SearchNames returns the names of all meta-tools of SearchTools.
func SearchNames(prefix string) []string {
	p := searchPrefix(prefix)
	return []string{p + "_search_tools", p + "_describe_tool", p + "_call_tool"}
}

func searchPrefix(prefix string) string {
	prefix = notInToolName.ReplaceAllString(prefix, "_")
	if len(prefix) > maxSearchName {
		prefix = prefix[:maxSearchName]
	}
	return prefix
}

// maxSearchName leaves room for the longest suffix in 64 characters.
const maxSearchName = 64 - len("_describe_tool")

var notInToolName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// Settings that offer meta-tools, and the page that documents each.
const (
	withRetrieve = "exposure_mode: retrieve: see docs/views.md"
	withCallTool = "exposure_mode: retrieve and routing_type: AUTO or CALL_TOOL: see docs/configuration.md"
	withSplit    = "exposure_mode: retrieve and call_tool: split: see docs/configuration.md"
	withGating   = "gating: see docs/gating.md"
	withSearch   = "exposure_mode: search, under the name of the view (NAME_search_tools, NAME_describe_tool, NAME_call_tool): see docs/views.md"
)

// offeredWith maps each meta-tool to the setting that offers it.
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
	ReadSkill:           "skills: see docs/skills.md",
	"search_tools":      withSearch,
	"describe_tool":     withSearch,
	"proxy":             "proxy_tool: see docs/proxy-tool.md",
	"run_script":        "run_script: true in a view: see docs/views.md",
	"read_output":       "output_cache: see docs/configuration.md",
}

// offered names the setting that offers a meta-tool which clients here do not have: "; X is offered with ...". It
// is "" for other names.
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
