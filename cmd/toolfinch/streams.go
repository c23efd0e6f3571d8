package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// streams are the program's streams. out has no filter: it carries the protocol.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func streamsOf(cmd *cobra.Command) streams {
	return streams{in: cmd.InOrStdin(), out: unfiltered(cmd.OutOrStdout()), err: cmd.ErrOrStderr()}
}

// outlivePipes makes writes to a closed standard output or error fail instead of ending the process. An agent that
// leaves closes all pipes at once: without this, a log line would end the process during its work. Children start with
// the default.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
