//go:build keep

package tool

import (
	_ "github.com/blevesearch/bleve/v2"
	_ "github.com/cenkalti/backoff/v5"
	_ "github.com/goccy/go-yaml"
	_ "github.com/mark3labs/mcp-go/client"
	_ "github.com/mark3labs/mcp-go/server"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/santhosh-tekuri/jsonschema/v6"
	_ "github.com/spf13/cobra"
	_ "github.com/tiktoken-go/tokenizer/codec"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/term"
	_ "modernc.org/sqlite"
)
