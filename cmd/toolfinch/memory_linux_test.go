package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// Pages of the program's file are given back, too, and come again.
func TestGiveBack(t *testing.T) {
	before := mappedFiles(t)
	giveBack()
	if after := mappedFiles(t); after >= before {
		t.Errorf("%d kB of files are in memory, %d before", after, before)
	}
}

// mappedFiles is how many kB of files are in the process's memory.
func mappedFiles(t *testing.T) int {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/self/status"))(t)
	_, rest, found := strings.Cut(string(text), "RssFile:")
	if !found {
		t.Skip("the kernel does not count them")
	}
	kB := must.Get(strconv.Atoi(strings.Fields(rest)[0]))(t)
	return kB
}
