// Package trust has no code. Its folder has six packages: inbound (who may come in), policy and rate (what they may
// do, and how often), audit (the log of events), pins (approved definitions), leaks (secrets in answers). None of
// them connects to an MCP server or stores a row. Package identity has the principals.
package trust
