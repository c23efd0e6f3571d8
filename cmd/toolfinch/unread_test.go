package main

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// A pipe that nobody reads delays no line; what does not fit is counted.
func TestALogThatNobodyReadsDelaysNobody(t *testing.T) {
	read, write := io.Pipe()
	b := newBacklog(write, &configs.Config{LogLevel: slog.LevelInfo})
	line := strings.Repeat("x", 1023) + "\n"
	for range 2000 {
		must.Get(fmt.Fprint(b, line))(t)
	}
	all := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(read)
		all <- string(text)
	}()
	b.close()
	_ = write.Close()
	text := await.Value(t, all)
	kept, said := strings.Count(text, line), 0
	for _, warning := range regexp.MustCompile(`msg="lines of this log were dropped: nobody read it" lines=(\d+)`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(warning[1]) // it may be said while lines still come, and at the end
		said += n
	}
	if kept != 1024 || b.lost() != int64(2000-kept) || said != 2000-kept {
		t.Errorf("%d lines, %d are said to be lost, and %q", kept, said, text[max(0, len(text)-200):])
	}
}

// A pipe that its reader has closed takes no line; they are counted, too.
func TestALogThatNobodyCanReadIsLost(t *testing.T) {
	read, write := io.Pipe()
	_ = read.Close()
	b := newBacklog(write, &configs.Config{LogLevel: slog.LevelInfo})
	fmt.Fprint(b, "one\ntwo\n")
	b.close()
	if n := b.lost(); n != 2 {
		t.Errorf("%d lines are lost, want 2", n)
	}
}

func TestAtTheEndALogIsWhole(t *testing.T) {
	var out strings.Builder
	b := newBacklog(&out, &configs.Config{LogLevel: slog.LevelInfo})
	log := newLog(b, &configs.Config{LogLevel: slog.LevelInfo})
	for i := range 100 {
		log.Info("line", "n", i)
	}
	b.close()
	if n := strings.Count(out.String(), "msg=line"); n != 100 {
		t.Errorf("%d lines of 100", n)
	}
}
